"""Damages of files, odd values, and almost valid content."""

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
    """Flip a bit, as a bad disk does."""
    index = random.randrange(len(content))
    byte = bytes([content[index] ^ (1 << random.randrange(8))])
    return content[:index] + byte + content[index + 1 :]


def truncate(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content))]


def append_garbage(content: bytes, random: Random) -> bytes:
    return content + random.randbytes(random.randint(1, 600))


def zero_a_block(content: bytes, random: Random) -> bytes:
    """Replace a block by zeros, as a file system does that has lost it."""
    start, size = random.randrange(len(content)), random.choice([16, 512, 4096])
    block = content[start : start + size]
    return content[:start] + bytes(len(block)) + content[start + size :]


def empty(_content: bytes, _random: Random) -> bytes:
    """Return no content, as after a power cut."""
    return b""


def change_shape(_content: bytes, random: Random) -> bytes:
    """Return valid JSON with another structure."""
    return json.dumps(random.choice(_SHAPES)).encode() + b"\n"


def cut_lines(content: bytes, random: Random) -> bytes:
    lines = content.splitlines(True)
    start = random.randrange(len(lines))
    del lines[start : start + random.randint(1, 2)]
    return b"".join(lines)


def repeat_a_line(content: bytes, random: Random) -> bytes:
    lines = content.splitlines(True)
    index = random.randrange(len(lines))
    return b"".join([*lines[:index], lines[index], *lines[index:]])


def change_a_number(content: bytes, random: Random) -> bytes:
    """Change a number, as a user might."""
    numbers = list(_NUMBER.finditer(content))
    if not numbers:
        return content
    number = random.choice(numbers)
    new = random.choice([b"7", b"0", b"0.123", b"1e9", b"123456789"])
    return content[: number.start()] + new + content[number.end() :]


def delete(path: Path, _random: Random) -> None:
    path.unlink()


def swap(path: Path, random: Random) -> None:
    """Swap the contents of two files of a folder."""
    others = [other for other in sorted(path.parent.iterdir()) if other.is_file() and other != path]
    if others:
        other = random.choice(others)
        content, other_content = path.read_bytes(), other.read_bytes()
        path.write_bytes(other_content)
        other.write_bytes(content)


def become_a_folder(path: Path, _random: Random) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").write_text("else")


CONTENT_DAMAGES = (flip_a_bit, truncate, append_garbage, zero_a_block, empty)
FILE_DAMAGES = (delete, swap, become_a_folder)
TEXT_DAMAGES = (change_shape, cut_lines, repeat_a_line, change_a_number)


def damage_file(path: Path, random: Random) -> str:
    """Damage a file in a random way; return a description."""
    content = path.read_bytes()
    ways: list[Callable[[Any, Random], bytes | None]] = [*CONTENT_DAMAGES, *FILE_DAMAGES]
    if path.suffix in (".json", ".jsonl", ".toml"):
        ways += [*TEXT_DAMAGES, change_a_number]
    if not content:
        ways = [append_garbage, delete, become_a_folder]
    way = random.choice(ways)
    apply_damage(way, path, random)
    return f"{way.__name__.replace('_', ' ')} of"


def apply_damage(way: Callable[[Any, Random], bytes | None], path: Path, random: Random) -> None:
    if way in FILE_DAMAGES:
        way(path, random)
    else:
        path.write_bytes(way(path.read_bytes(), random) or b"")


def copy_run(run: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return shutil.copytree(run, target)


Draw: TypeAlias = Callable[[SearchStrategy[Any]], Any]
"""A function that draws an example of a strategy."""

_TEXTS = ["", " ", "0", "-1", "1e3", "nan", "auto", "a\nb", "quote \" and \\ and '", "\x7f\x1b[31m"]
_TEXTS += ["\u2028é漢\U0001f600", "\ud800", "\0", "[bold]x[/bold]", "..", "/", "/dev/null"]
WORDS = (*_TEXTS, "x" * 300)
"""Texts with a special meaning somewhere, or that cannot be written in some encoding."""

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
ODD_VALUES = _PLAIN | st.recursive(
    _PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
"""Values that are invalid for most options and fields."""

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
    """Return JSON in which one value is changed, missing or repeated."""
    root = [json.loads(content)]
    holder, key = draw(st.sampled_from(_list_entries(root)))
    way = 4 if holder is root else draw(st.integers(0, 4))
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif way == 2 and isinstance(holder, dict):
        holder[draw(st.text(max_size=50))] = holder.pop(key)
    else:
        holder[key] = draw(ODD_VALUES)
    return json.dumps(root[0]).encode("utf-8", "surrogatepass")


def _list_entries(value: Any) -> list[tuple[Any, Any]]:
    """Return all entries of nested lists and dicts, each as its container and its key or index."""
    if not isinstance(value, dict | list):
        return []
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    entries = [(value, key) for key in keys]
    return entries + [entry for key in keys for entry in _list_entries(value[key])]
