"""A user's folder of pictures: who owns which, and what they show."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from cadis.core import CadisError
from cadis.data.files import is_folder, shown

_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes:
        path: its file.
        label: number of its class.
        client: who owns it; None if nobody is said to.
    """

    path: Path
    label: int
    client: str | None = None


@dataclass(frozen=True)
class Album:
    """Pictures to learn from.

    Attributes:
        train: to be given to clients.
        test: that no client sees; empty if the folder has no such part.
        classes: names of the classes.
        links: to other folders, in which no picture was looked for.
    """

    train: list[Picture]
    test: list[Picture]
    classes: tuple[str, ...]
    links: tuple[Path, ...] = ()

    def numbered_as(self, classes: Sequence[str], folder: Path) -> "Album":
        """With numbers for classes of which this folder may have only some."""
        numbers = {name: number for number, name in enumerate(classes)}
        for name in self.classes:
            if name not in numbers:
                raise CadisError(
                    f"{folder} has pictures of {name}, which is none of the classes: "
                    f"{', '.join(classes)}."
                )
        train, test = (
            [replace(picture, label=numbers[self.classes[picture.label]]) for picture in part]
            for part in (self.train, self.test)
        )
        return replace(self, train=train, test=test, classes=tuple(classes))


def read_album(folder: Path) -> Album:
    """The pictures in a folder, in one of these layouts.

    - ``<client>/<class>/<picture>``: who owns what is given;
    - ``<class>/<picture>``: to be partitioned;
    - either of them within ``train``, beside ``test/<class>/<picture>``.
    """
    if not is_folder(folder):
        raise CadisError(
            f"There is no folder {shown(folder)}; name that of your pictures by "
            "--dataset images:FOLDER."
        )
    check_name(folder)
    split = is_folder(folder / "train") and is_folder(folder / "test")
    links: list[Path] = []
    train = _read_tree(folder / "train" if split else folder, links)
    test = _read_tree(folder / "test", links) if split else []
    classes = sorted({label for _, label, _ in train + test}, key=_natural)
    numbers = {name: number for number, name in enumerate(classes)}

    def numbered(found: Iterable[tuple[Path, str, str | None]]) -> list[Picture]:
        return [Picture(path, numbers[label], client) for path, label, client in found]

    return Album(numbered(train), numbered(test), tuple(classes), tuple(links))


def _read_tree(folder: Path, links: list[Path]) -> list[tuple[Path, str, str | None]]:
    """Path, class and client of each picture, as the folders that it is in say.

    Args:
        folder: where they are.
        links: takes up links to folders, which are not followed: they may lead in circles.
    """
    paths = sorted(_walk(folder, links), key=lambda path: _natural(str(path)))
    if not paths:
        raise CadisError(
            f"There are no pictures in {folder}; put them into one folder for each class, which "
            "is not a link."
        )
    found = [(path, path.relative_to(folder).parts) for path in paths]
    path, parts = found[0]
    if len(parts) not in (2, 3):
        raise CadisError(
            f"{shown(path)} is neither in a folder of its class, as {folder}/<class>/<picture>, "
            f"nor of its client and class, as {folder}/<client>/<class>/<picture>; move it there."
        )
    for other, others in found:
        if len(others) != len(parts):
            raise CadisError(
                f"{shown(path)} and {shown(other)} are in folders of different depth; put all "
                "pictures into <class>/<picture>, or all into <client>/<class>/<picture>."
            )
    for place in {path.parent for path in paths}:
        check_name(place)
    return [(path, parts[-2], parts[0] if len(parts) == 3 else None) for path, parts in found]


def _walk(folder: Path, links: list[Path]) -> Iterator[Path]:
    """All files that are named as pictures are, but hidden ones."""
    for place, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        links += [Path(place, name) for name in folders if Path(place, name).is_symlink()]
        for name in files:
            if Path(name).suffix.lower() in _SUFFIXES and not name.startswith("."):
                yield Path(place, name)


def _refuse(error: OSError) -> NoReturn:
    """What is in a folder that cannot be read would be missing in silence."""
    raise CadisError(
        f"The folder {shown(error.filename)} cannot be read: {error.strerror}; let it be read, or "
        "move it elsewhere."
    ) from None


def check_name(folder: Path) -> None:
    """Names of clients and classes are written and shown, so they must be text."""
    if shown(folder) != str(folder):
        raise CadisError(f"The name of the folder {shown(folder)} is not valid UTF-8; rename it.")


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Sorts 2 before 10; names that differ only in how a number is written, always alike."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], name
