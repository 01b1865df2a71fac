"""The layout in which the paper's pill pictures were published."""

import json
from pathlib import Path, PurePath
from typing import Any

from cadis.core import CadisError
from cadis.data.album import Album, Picture, check_name
from cadis.data.files import is_folder
from cadis.data.json_files import read_object

_MOST_CLASSES = 100_000
"""A class with a higher number is a mistake: a model would have an output for each below it."""


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
        test = _read_side(folder / "server_dataset", numbers)
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
