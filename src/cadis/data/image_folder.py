"""A user's folder of pictures, in any layout: who owns which, and what they show."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, NoReturn

from cadis._io import is_folder, natural, read_object, shown
from cadis.data.dicom import PICTURE_SUFFIXES, is_dicom
from cadis.errors import CadisError

_MOST_CLASSES = 100_000
"""A class with a higher number is a mistake: a model would have an output for each below it."""


@dataclass(frozen=True)
class Picture:
    """One picture."""

    path: Path
    label: int  # number of its class
    client: str | None = None  # who owns it; None if nobody is said to


@dataclass
class LeftOut:
    """What is left out of a folder, to be told."""

    links: list[Path] = field(default_factory=list)  # to folders; they may lead in circles
    others: list[Path] = field(default_factory=list)  # files that are not named as pictures are
    empty: list[Path] = field(default_factory=list)  # folders of clients or classes


@dataclass(frozen=True)
class Album:
    """Pictures to learn from."""

    train: list[Picture]  # to be given to clients
    test: list[Picture]  # that no client sees; empty if the folder has no such part
    classes: tuple[str, ...]
    left_out: LeftOut = field(default_factory=LeftOut)

    def numbered_as(self, classes: Sequence[str], folder: Path) -> "Album":
        """Number the classes as given; this folder may have only some of them."""
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
    """Find the pictures in a folder, in one of these layouts.

    - ``<client>/<class>/<picture>``: who owns what is given;
    - ``<class>/<picture>``: to be partitioned;
    - either of them within ``train``, beside ``test/<class>/<picture>``;
    - that of the paper's pill pictures, see :func:`_read_pills`.
    """
    if is_folder(folder / "client_dataset"):
        return _read_pills(folder)
    if not is_folder(folder):
        raise CadisError(
            f"There is no folder {shown(folder)}; name that of your pictures by "
            "--dataset images:FOLDER."
        )
    _check_name(folder)
    split = is_folder(folder / "train") and is_folder(folder / "test")
    left_out = LeftOut()
    parts = [_read_tree(folder / "train" if split else folder, left_out)]
    parts.append(_read_tree(folder / "test", left_out) if split else [])
    classes = sorted({label for part in parts for _, label, _ in part}, key=natural)
    numbers = {name: number for number, name in enumerate(classes)}
    train, test = (
        [Picture(path, numbers[label], client) for path, label, client in part] for part in parts
    )
    return Album(train, test, tuple(classes), left_out)


def _read_tree(folder: Path, left_out: LeftOut) -> list[tuple[Path, str, str | None]]:
    """Return path, class and client of each picture, as the folders that it is in say."""
    paths = find_pictures(folder, left_out)
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
        _check_name(place)
    filled = {names[0] for _, names in found}
    folders = [path for path in folder.iterdir() if path.is_dir() and path.name[0] != "."]
    empty = [path for path in folders if path.name not in filled and path not in left_out.links]
    left_out.empty += sorted(empty, key=lambda path: natural(path.name))
    return [(path, parts[-2], parts[0] if len(parts) == 3 else None) for path, parts in found]


def find_pictures(folder: Path, left_out: LeftOut | None = None) -> list[Path]:
    """Return all pictures in a folder and the folders within, but hidden ones; 2 before 10."""
    found: list[Path] = []
    left_out = left_out or LeftOut()
    for place, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        left_out.links += [Path(place, name) for name in folders if Path(place, name).is_symlink()]
        for path in (Path(place, name) for name in files if not name.startswith(".")):
            is_picture = path.suffix.lower() in PICTURE_SUFFIXES or is_dicom(path)
            (found if is_picture else left_out.others).append(path)
    return sorted(found, key=lambda path: natural(str(path)))


def _refuse(error: OSError) -> NoReturn:
    """Refuse a folder that cannot be read: its pictures would be missing in silence."""
    raise CadisError(
        f"The folder {shown(error.filename)} cannot be read: {error.strerror}; let it be read, or "
        "move it elsewhere."
    ) from None


def _check_name(folder: Path) -> None:
    """Refuse names of clients and classes that are no text, as they are written and shown."""
    if shown(folder) != str(folder):
        raise CadisError(f"The name of the folder {shown(folder)} is not valid UTF-8; rename it.")


def _read_pills(folder: Path) -> Album:
    """Find the paper's pill pictures.

    In ``client_dataset`` and ``server_dataset`` (the test set): ``user_group_img.json`` tells
    the pictures of each client, ``img_label_dict.json`` the label of each picture, and
    ``label_hash.json`` the number of each label. The pictures are in ``pill_cropped``, there or
    beside the two folders.
    """
    _check_name(folder)
    path = folder / "client_dataset" / "label_hash.json"
    numbers = read_object(path)
    for name, number in numbers.items():
        if type(number) is not int or not 0 <= number < _MOST_CLASSES:
            raise CadisError(
                f"In {path}, the class {name} has the number {json.dumps(number)[:40]}; number "
                f"classes from 0, below {_MOST_CLASSES:,}."
            )
    names = {number: name for name, number in numbers.items()}
    classes = tuple(names.get(number, "-") for number in range(max(names) + 1))
    test = []
    if is_folder(folder / "server_dataset"):
        found = _read_side(folder / "server_dataset", numbers)
        test = [replace(picture, client=None) for picture in found]  # the server's, not client 0's
    return Album(_read_side(folder / "client_dataset", numbers), test, classes)


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
