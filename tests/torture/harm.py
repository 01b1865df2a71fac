"""Ways to damage a file, odd values, and content that is almost right."""

import copy
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

_SHAPES: list[object] = [[], {}, None, 3, "text", [1, 2]]
_SHAPES += [{"round": 1}, {"clients": [], "classes": []}, {"accuracy": "high"}]
_NUMBER = re.compile(rb"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")


def flip_a_bit(content: bytes, random: Random) -> bytes:
    """As a bad disk does."""
    place = random.randrange(len(content))
    changed = bytes([content[place] ^ (1 << random.randrange(8))])
    return content[:place] + changed + content[place + 1 :]


def truncate(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content))]


def append_garbage(content: bytes, random: Random) -> bytes:
    return content + random.randbytes(random.randint(1, 600))


def zero_a_block(content: bytes, random: Random) -> bytes:
    """As a file system does that has lost a block."""
    place, size = random.randrange(len(content)), random.choice([16, 512, 4096])
    lost = content[place : place + size]
    return content[:place] + bytes(len(lost)) + content[place + size :]


def empty(_content: bytes, _random: Random) -> bytes:
    """As after a power cut."""
    return b""


def change_shape(_content: bytes, random: Random) -> bytes:
    """Valid JSON, but of something else."""
    return json.dumps(random.choice(_SHAPES)).encode() + b"\n"


def cut_lines(content: bytes, random: Random) -> bytes:
    lines = content.splitlines(True)
    start = random.randrange(len(lines))
    del lines[start : start + random.randint(1, 2)]
    return b"".join(lines)


def repeat_a_line(content: bytes, random: Random) -> bytes:
    lines = content.splitlines(True)
    place = random.randrange(len(lines))
    return b"".join([*lines[:place], lines[place], *lines[place:]])


def change_a_number(content: bytes, random: Random) -> bytes:
    """As a hand does that only means well."""
    found = list(_NUMBER.finditer(content))
    if not found:
        return content
    number = random.choice(found)
    new = random.choice([b"7", b"0", b"0.123", b"1e9", b"123456789"])
    return content[: number.start()] + new + content[number.end() :]


def delete(path: Path, _random: Random) -> None:
    path.unlink()


def swap(path: Path, random: Random) -> None:
    """Two files of a folder have each other's content."""
    others = [other for other in sorted(path.parent.iterdir()) if other.is_file() and other != path]
    if others:
        other = random.choice(others)
        mine, theirs = path.read_bytes(), other.read_bytes()
        path.write_bytes(theirs)
        other.write_bytes(mine)


def become_a_folder(path: Path, _random: Random) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").write_text("else")


OF_CONTENT = (flip_a_bit, truncate, append_garbage, zero_a_block, empty)
OF_FILES = (delete, swap, become_a_folder)
OF_TEXT = (change_shape, cut_lines, repeat_a_line, change_a_number)


def harm(path: Path, random: Random) -> str:
    """Damage a file in one of the ways that suit it; says how."""
    content = path.read_bytes()
    ways: list[Callable[[Any, Random], bytes | None]] = [*OF_CONTENT, *OF_FILES]
    if path.suffix in (".json", ".jsonl", ".toml"):
        ways += [*OF_TEXT, change_a_number]
    if not content:
        ways = [append_garbage, delete, become_a_folder]
    way = random.choice(ways)
    do_harm(way, path, random)
    return f"{way.__name__.replace('_', ' ')} of"


def do_harm(way: Callable[[Any, Random], bytes | None], path: Path, random: Random) -> None:
    if way in OF_FILES:
        way(path, random)
    else:
        path.write_bytes(way(path.read_bytes(), random) or b"")


def copy_run(run: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return shutil.copytree(run, target)


Draw: TypeAlias = Callable[[SearchStrategy[Any]], Any]
"""Draw an example of a strategy."""

_TEXTS = ["", " ", "0", "-1", "1e3", "nan", "auto", "a\nb", "quote \" and \\ and '", "\x7f\x1b[31m"]
_TEXTS += ["\u2028é漢\U0001f600", "\ud800", "\0", "[bold]x[/bold]", "..", "/", "/dev/null"]
WORDS = (*_TEXTS, "x" * 300)
"""Texts that have a meaning somewhere, or that something cannot write."""

_NUMBERS = (0, -1, 2, 3.5, 1e-320, 1e308, 2**31, 2**63, -(2**63) - 1, 10**400)
_PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(_NUMBERS),
    st.floats(),
    st.integers(),
    st.sampled_from(WORDS),
    st.text(st.characters(), max_size=20),
)
ODD = _PLAIN | st.recursive(
    _PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
"""Values that hardly any option or field is meant to hold."""

_EXTREMES = (b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 8, b"-1", b"{")


def mutate_bytes(content: bytes, draw: Draw) -> bytes:
    """Return bytes with some changed, missing, repeated or added."""
    for _ in range(draw(st.sampled_from([1, 2, 5, 20]))):
        start = draw(st.integers(0, len(content)))
        piece = content[start : start + draw(st.sampled_from([1, 4, 16, 200]))]
        ends = [start, start + 1, start + 4, start + len(piece), len(content)]
        end = draw(st.sampled_from(ends))
        new = st.sampled_from([b"", piece, *_EXTREMES]) | st.binary(max_size=200)
        content = content[:start] + draw(new) + content[end:]
    return content


def mutate_json(content: str | bytes, draw: Draw) -> bytes:
    """Return JSON in which one part, anywhere, is another, missing, or there twice."""
    whole = [json.loads(content)]
    holder, key = draw(st.sampled_from(_parts(whole)))
    way = 4 if holder is whole else draw(st.integers(0, 4))
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif way == 2 and isinstance(holder, dict):
        holder[draw(st.text(max_size=50))] = holder.pop(key)
    else:
        holder[key] = draw(ODD)
    return json.dumps(whole[0]).encode("utf-8", "surrogatepass")


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """Return all places of a value, each as what holds it and the key or index there."""
    if not isinstance(value, dict | list):
        return []
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    own = [(value, key) for key in keys]
    return own + [part for key in keys for part in _parts(value[key])]
