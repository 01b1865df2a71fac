"""Ways to damage a file."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

_SHAPES: tuple[object, ...] = (
    [],
    {},
    None,
    3,
    "text",
    [1, 2],
    {"round": 1},
    {"clients": [], "classes": []},
    {"accuracy": "high"},
)
_NUMBER = re.compile(rb"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")


def flip_a_bit(path: Path, random: Random) -> None:
    """As a bad disk does."""
    content = bytearray(path.read_bytes())
    place = random.randrange(len(content))
    content[place] ^= 1 << random.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, random: Random) -> None:
    """The end is missing."""
    content = path.read_bytes()
    path.write_bytes(content[: random.randrange(len(content))])


def append_garbage(path: Path, random: Random) -> None:
    """Something follows that does not belong there."""
    path.write_bytes(path.read_bytes() + random.randbytes(random.randint(1, 600)))


def zero_a_block(path: Path, random: Random) -> None:
    """As a file system does that has lost a block."""
    content = bytearray(path.read_bytes())
    place, size = random.randrange(len(content)), random.choice([16, 512, 4096])
    content[place : place + size] = bytes(len(content[place : place + size]))
    path.write_bytes(content)


def empty(path: Path, _random: Random) -> None:
    """As after a power cut."""
    path.write_bytes(b"")


def delete(path: Path, _random: Random) -> None:
    """It is gone."""
    path.unlink()


def swap(path: Path, random: Random) -> None:
    """Two files of a folder have each other's content."""
    others = [other for other in sorted(path.parent.iterdir()) if other.is_file() and other != path]
    if others:
        other = random.choice(others)
        mine, theirs = path.read_bytes(), other.read_bytes()
        path.write_bytes(theirs)
        other.write_bytes(mine)


def change_shape(path: Path, random: Random) -> None:
    """Valid JSON, but of something else."""
    path.write_text(json.dumps(random.choice(_SHAPES)) + "\n")


def cut_lines(path: Path, random: Random) -> None:
    """Some lines are missing, anywhere."""
    lines = path.read_bytes().splitlines(True)
    start = random.randrange(len(lines))
    del lines[start : start + random.randint(1, 2)]
    path.write_bytes(b"".join(lines))


def repeat_a_line(path: Path, random: Random) -> None:
    """A line is there twice."""
    lines = path.read_bytes().splitlines(True)
    place = random.randrange(len(lines))
    lines.insert(place, lines[place])
    path.write_bytes(b"".join(lines))


def change_a_number(path: Path, random: Random) -> None:
    """As a hand does that only means well."""
    content = path.read_bytes()
    found = list(_NUMBER.finditer(content))
    if found:
        number = random.choice(found)
        new = random.choice([b"7", b"0", b"0.123", b"1e9", b"123456789"])
        path.write_bytes(content[: number.start()] + new + content[number.end() :])


def become_a_folder(path: Path, _random: Random) -> None:
    """A folder of its name."""
    path.unlink()
    path.mkdir()
    (path / "something").write_text("else")


Harm = Callable[[Path, Random], None]

ANY: tuple[Harm, ...] = (
    flip_a_bit,
    truncate,
    append_garbage,
    zero_a_block,
    empty,
    delete,
    swap,
    become_a_folder,
)
OF_TEXT: tuple[Harm, ...] = (change_shape, cut_lines, repeat_a_line, change_a_number)


def harm(path: Path, random: Random) -> str:
    """Damage a file in one of the ways that suit it; says how."""
    content = path.read_bytes()
    ways = [*ANY]
    if path.suffix in (".json", ".jsonl", ".toml"):
        ways += [*OF_TEXT, change_a_number]
    if not content:
        ways = [append_garbage, delete, become_a_folder]
    way = random.choice(ways)
    way(path, random)
    return f"{way.__name__.replace('_', ' ')} of"


def copy_run(run: Path, target: Path) -> Path:
    """A copy of a folder with everything in it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    return shutil.copytree(run, target)
