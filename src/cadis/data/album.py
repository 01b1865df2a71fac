"""A user's folder of pictures: who owns which, and what they show."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cadis.core import CadisError
from cadis.data.json_files import read_object

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
    """

    train: list[Picture]
    test: list[Picture]
    classes: tuple[str, ...]

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
        return Album(train, test, tuple(classes))


def read_album(folder: Path) -> Album:
    """The pictures in a folder, in one of these layouts.

    - ``<client>/<class>/<picture>``: who owns what is given;
    - ``<class>/<picture>``: to be partitioned;
    - either of them within ``train``, beside ``test/<class>/<picture>``;
    - the layout of the paper's pills: see :func:`_read_pills`.
    """
    if not folder.is_dir():
        raise CadisError(
            f"There is no folder {folder}; name that of your pictures by --dataset images:FOLDER."
        )
    if (folder / "client_dataset").is_dir():
        return _read_pills(folder)
    split = (folder / "train").is_dir() and (folder / "test").is_dir()
    train = _read_tree(folder / "train" if split else folder)
    test = _read_tree(folder / "test") if split else []
    classes = sorted({label for _, label, _ in train + test}, key=_natural)
    numbers = {name: number for number, name in enumerate(classes)}

    def numbered(found: Iterable[tuple[Path, str, str | None]]) -> list[Picture]:
        return [Picture(path, numbers[label], client) for path, label, client in found]

    return Album(numbered(train), numbered(test), tuple(classes))


def _read_tree(folder: Path) -> list[tuple[Path, str, str | None]]:
    """Path, class and client of each picture, as the folders that it is in say."""
    found = []
    for path in sorted(folder.rglob("*"), key=lambda path: _natural(str(path))):
        parts = path.relative_to(folder).parts
        if path.suffix.lower() in _SUFFIXES and not any(part.startswith(".") for part in parts):
            found.append((path, parts))
    if not found:
        raise CadisError(
            f"There are no pictures in {folder}; put them into one folder for each class."
        )
    path, parts = found[0]
    if len(parts) not in (2, 3):
        raise CadisError(
            f"{path} is neither in a folder of its class, as {folder}/<class>/<picture>, nor of "
            f"its client and class, as {folder}/<client>/<class>/<picture>; move it there."
        )
    for other, others in found:
        if len(others) != len(parts):
            raise CadisError(
                f"{path} and {other} are in folders of different depth; put all pictures into "
                "<class>/<picture>, or all into <client>/<class>/<picture>."
            )
    return [(path, parts[-2], parts[0] if len(parts) == 3 else None) for path, parts in found]


def _read_pills(folder: Path) -> Album:
    """The layout of the paper's pill pictures.

    In ``client_dataset`` and ``server_dataset`` (the test set): ``user_group_img.json`` tells
    the pictures of each client, ``img_label_dict.json`` the label of each picture, and
    ``label_hash.json`` the number of each label. The pictures are in ``pill_cropped``, there or
    beside the two folders.
    """
    numbers = read_object(folder / "client_dataset" / "label_hash.json")
    names = {number: name for name, number in numbers.items()}
    classes = tuple(names.get(number, "-") for number in range(max(names, default=-1) + 1))
    test = []
    if (folder / "server_dataset").is_dir():
        test = _read_side(folder / "server_dataset", numbers)
    return Album(_read_side(folder / "client_dataset", numbers), test, classes)


def _read_side(side: Path, numbers: dict[str, int]) -> list[Picture]:
    labels = read_object(side / "img_label_dict.json")
    own = side / "pill_cropped"
    pictures = own if own.is_dir() else side.parent / "pill_cropped"
    found = []
    for client, images in read_object(side / "user_group_img.json").items():
        for image in images:
            if labels.get(image) not in numbers:
                raise CadisError(
                    f"The picture {image} of client {client} in {side} has no label in "
                    "img_label_dict.json that label_hash.json has a number for; add it."
                )
            found.append(Picture(pictures / image, numbers[labels[image]], client))
    return found


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts 2 before 10."""
    return [
        (int(part or -1), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)
    ]
