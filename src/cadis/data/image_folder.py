"""A user's folder of pictures, in any layout: who owns which, and what they show."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, NoReturn

from cadis._io import is_folder, natural, read_object, shown
from cadis.data.dicom import is_dicom
from cadis.errors import CadisError

_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}

_MOST_CLASSES = 100_000
"""A class with a higher number is a mistake: a model would have an output for each below it."""


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
        others: files that are not named as pictures are.
        empty: folders of clients or classes in which there is no picture.
    """

    train: list[Picture]
    test: list[Picture]
    classes: tuple[str, ...]
    links: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()
    empty: tuple[Path, ...] = ()

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
    aside = _Aside()
    train = _read_tree(folder / "train" if split else folder, aside)
    test = _read_tree(folder / "test", aside) if split else []
    classes = sorted({label for _, label, _ in train + test}, key=natural)
    numbers = {name: number for number, name in enumerate(classes)}

    def numbered(found: Iterable[tuple[Path, str, str | None]]) -> list[Picture]:
        return [Picture(path, numbers[label], client) for path, label, client in found]

    left = (tuple(aside.links), tuple(aside.others), tuple(aside.empty))
    return Album(numbered(train), numbered(test), tuple(classes), *left)


@dataclass
class _Aside:
    """What is left out of a folder, to be told.

    Attributes:
        links: to folders, which are not followed: they may lead in circles.
        others: files that are not named as pictures are.
        empty: folders of clients or classes without any picture.
    """

    links: list[Path] = field(default_factory=list)
    others: list[Path] = field(default_factory=list)
    empty: list[Path] = field(default_factory=list)


def _read_tree(folder: Path, aside: _Aside) -> list[tuple[Path, str, str | None]]:
    """Path, class and client of each picture, as the folders that it is in say."""
    paths = sorted(_walk(folder, aside), key=lambda path: natural(str(path)))
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
    aside.empty += _empty_folders(folder, {names[0] for _, names in found}, aside.links)
    return [(path, parts[-2], parts[0] if len(parts) == 3 else None) for path, parts in found]


def _empty_folders(folder: Path, filled: set[str], links: Sequence[Path]) -> list[Path]:
    """Folders of clients, or of classes, in which no picture was found."""
    folders = [path for path in folder.iterdir() if path.is_dir() and path not in links]
    empty = [path for path in folders if path.name not in filled and path.name[0] != "."]
    return sorted(empty, key=lambda path: natural(path.name))


def _walk(folder: Path, aside: _Aside) -> Iterator[Path]:
    """All files that are named as pictures are, but hidden ones."""
    for place, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        aside.links += [Path(place, name) for name in folders if Path(place, name).is_symlink()]
        for name in files:
            if name.startswith("."):
                continue
            if Path(name).suffix.lower() in _SUFFIXES or is_dicom(Path(place, name)):
                yield Path(place, name)
            else:
                aside.others.append(Path(place, name))


def find_pictures(folder: Path) -> list[Path]:
    """All pictures in a folder and the folders within, but hidden ones; 2 comes before 10."""
    return sorted(_walk(folder, _Aside()), key=lambda path: natural(str(path)))


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


def are_pills(folder: Path) -> bool:
    """Whether a folder has this layout."""
    return is_folder(folder / "client_dataset")


def read_pills(folder: Path) -> Album:
    """The layout of the paper's pill pictures.

    In ``client_dataset`` and ``server_dataset`` (the test set): ``user_group_img.json`` tells
    the pictures of each client, ``img_label_dict.json`` the label of each picture, and
    ``label_hash.json`` the number of each label. The pictures are in ``pill_cropped``, there or
    beside the two folders.
    """
    check_name(folder)
    numbers = _read_numbers(folder / "client_dataset" / "label_hash.json")
    names = {number: name for name, number in numbers.items()}
    classes = tuple(names.get(number, "-") for number in range(max(names) + 1))
    test = []
    if is_folder(folder / "server_dataset"):
        found = _read_side(folder / "server_dataset", numbers)
        test = [replace(picture, client=None) for picture in found]  # the server's, not client 0's
    return Album(_read_side(folder / "client_dataset", numbers), test, classes)


def _read_numbers(path: Path) -> dict[str, int]:
    numbers = read_object(path)
    for name, number in numbers.items():
        if type(number) is not int or not 0 <= number < _MOST_CLASSES:
            raise CadisError(
                f"In {path}, the class {name} has the number {json.dumps(number)[:40]}; number "
                f"classes from 0, below {_MOST_CLASSES:,}."
            )
    return numbers


def _read_side(side: Path, numbers: dict[str, int]) -> list[Picture]:
    labels = read_object(side / "img_label_dict.json")
    own = side / "pill_cropped"
    pictures = own if is_folder(own) else side.parent / "pill_cropped"
    found = []
    for client, images in read_object(side / "user_group_img.json").items():
        _check_images(client, images, side)
        for image in images:
            label = labels.get(image)
            if not isinstance(label, str) or label not in numbers:
                raise CadisError(
                    f"The picture {image} of client {client} in {side} has no label in "
                    "img_label_dict.json that label_hash.json has a number for; add it."
                )
            found.append(Picture(pictures / image, numbers[label], client))
    return found


def _check_images(client: str, images: Any, side: Path) -> None:
    where = f"client {client} in {side / 'user_group_img.json'}"
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise CadisError(f"The {where} must have a list of names of pictures; correct it.")
    for image in images:
        if PurePath(image).is_absolute() or ".." in PurePath(image).parts:
            raise CadisError(
                f"The {where} has the picture {image}, which is not within pill_cropped; put it "
                "there, and name it by its path from there."
            )
