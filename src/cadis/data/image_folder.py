"""Finding the images in a user's folder, with their classes and clients."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, NoReturn

from cadis._io import is_folder, natural_key, read_json_object, to_printable
from cadis.data.dicom import IMAGE_SUFFIXES, is_dicom
from cadis.data.samples import MAX_CLASSES
from cadis.errors import CadisError


@dataclass(frozen=True)
class ImageFile:
    """An image with its class and its client."""

    path: Path
    label: int
    client: str | None = None  # None if the folder does not define clients


@dataclass
class SkippedFiles:
    """Entries of a folder that are not used, to be reported to the user."""

    links: list[Path] = field(default_factory=list)  # links to folders: they may form cycles
    others: list[Path] = field(default_factory=list)  # files without the suffix of an image
    empty: list[Path] = field(default_factory=list)  # folders of clients or classes without images


@dataclass(frozen=True)
class ImageFolder:
    """Images of a dataset."""

    train: list[ImageFile]
    test: list[ImageFile]  # empty if the folder has no test set
    classes: tuple[str, ...]
    skipped: SkippedFiles = field(default_factory=SkippedFiles)

    def renumber_classes(self, classes: Sequence[str], folder: Path) -> "ImageFolder":
        """Return the images with labels that are indices into ``classes``.

        Args:
            classes: names of all classes; this folder may have only some of them.
            folder: path of the folder, for error messages.
        """
        numbers = {name: number for number, name in enumerate(classes)}
        for name in self.classes:
            if name not in numbers:
                raise CadisError(
                    f"{folder} has images of {name}, which is not one of the classes: "
                    f"{', '.join(classes)}; rename the folder, or add the class."
                )
        train, test = (
            [replace(image, label=numbers[self.classes[image.label]]) for image in part]
            for part in (self.train, self.test)
        )
        return replace(self, train=train, test=test, classes=tuple(classes))


def read_image_folder(folder: Path) -> ImageFolder:
    """Find the images of a folder, in one of these layouts.

    - ``<client>/<class>/<image>``: the folder defines the clients;
    - ``<class>/<image>``: a partition splits the images among clients;
    - one of these within ``train``, beside ``test/<class>/<image>``;
    - the layout of the paper's pill images, see :func:`_read_pills`.
    """
    if is_folder(folder / "client_dataset"):
        return _read_pills(folder)
    if not is_folder(folder):
        raise CadisError(
            f"There is no folder {to_printable(folder)}; name the folder of your images with "
            "--dataset images:FOLDER."
        )
    _check_name(folder)
    has_split = is_folder(folder / "train") and is_folder(folder / "test")
    skipped = SkippedFiles()
    parts = [_read_tree(folder / "train" if has_split else folder, skipped)]
    parts.append(_read_tree(folder / "test", skipped) if has_split else [])
    classes = sorted({label for part in parts for _, label, _ in part}, key=natural_key)
    numbers = {name: number for number, name in enumerate(classes)}
    train, test = (
        [ImageFile(path, numbers[label], client) for path, label, client in part] for part in parts
    )
    return ImageFolder(train, test, tuple(classes), skipped)


def _read_tree(folder: Path, skipped: SkippedFiles) -> list[tuple[Path, str, str | None]]:
    """Return the path, class and client of each image, as given by the names of its folders."""
    paths = find_images(folder, skipped)
    if not paths:
        raise CadisError(
            f"There are no images in {folder}; put them into one folder per class. Links to "
            "folders are not followed."
        )
    names = [path.relative_to(folder).parts for path in paths]
    _check_depth(folder, paths, names)
    for parent in {path.parent for path in paths}:
        _check_name(parent)
    filled = {parts[0] for parts in names}
    folders = [path for path in folder.iterdir() if path.is_dir() and path.name[0] != "."]
    empty = [path for path in folders if path.name not in filled and path not in skipped.links]
    skipped.empty += sorted(empty, key=lambda path: natural_key(path.name))
    return [
        (path, parts[-2], parts[0] if len(parts) == 3 else None)
        for path, parts in zip(paths, names, strict=True)
    ]


def _check_depth(folder: Path, paths: Sequence[Path], names: Sequence[Sequence[str]]) -> None:
    """Raise an error unless all images are in <class>, or all in <client>/<class>."""
    depth = len(names[0])
    if depth not in (2, 3):
        raise CadisError(
            f"{to_printable(paths[0])} is neither in {folder}/<class>/<image> nor in "
            f"{folder}/<client>/<class>/<image>; move it there."
        )
    for path, parts in zip(paths, names, strict=True):
        if len(parts) != depth:
            raise CadisError(
                f"{to_printable(paths[0])} and {to_printable(path)} are in folders of different "
                "depth; put all images into <class>/<image>, or all into "
                "<client>/<class>/<image>."
            )


def find_images(folder: Path, skipped: SkippedFiles | None = None) -> list[Path]:
    """Find the images in a folder and its subfolders, except hidden ones.

    Args:
        folder: folder to search.
        skipped: filled with links and files that are not images.

    Returns:
        Paths in natural order: 2 before 10.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from cadis.data import find_images
        >>> with TemporaryDirectory() as folder:
        ...     for name in ("10.png", "2.png", "notes.txt"):
        ...         Path(folder, name).touch()
        ...     [path.name for path in find_images(Path(folder))]
        ['2.png', '10.png']
    """
    images: list[Path] = []
    skipped = skipped or SkippedFiles()
    for parent, folders, files in os.walk(folder, onerror=_raise_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        skipped.links += [Path(parent, name) for name in folders if Path(parent, name).is_symlink()]
        for path in (Path(parent, name) for name in files if not name.startswith(".")):
            is_image = path.suffix.lower() in IMAGE_SUFFIXES or is_dicom(path)
            (images if is_image else skipped.others).append(path)
    return sorted(images, key=lambda path: natural_key(str(path)))


def _raise_unreadable(error: OSError) -> NoReturn:
    """Raise an error for an unreadable folder; ``os.walk`` would ignore its images."""
    raise CadisError(
        f"The folder {to_printable(error.filename)} cannot be read: {error.strerror}; allow "
        "reading, or move it elsewhere."
    ) from None


def _check_name(folder: Path) -> None:
    """Raise an error if a path is not valid UTF-8, since names of clients are written to files."""
    if to_printable(folder) != str(folder):
        raise CadisError(
            f"The name of the folder {to_printable(folder)} is not valid UTF-8; rename it."
        )


def _read_pills(folder: Path) -> ImageFolder:
    """Find the paper's pill images.

    The folders ``client_dataset`` and ``server_dataset`` (the test set) have three files:
    ``user_group_img.json`` lists the images of each client, ``img_label_dict.json`` gives the
    label of each image, and ``label_hash.json`` gives the number of each label. The images are in
    ``pill_cropped``, either within these folders or beside them.
    """
    _check_name(folder)
    path = folder / "client_dataset" / "label_hash.json"
    numbers = read_json_object(path)
    for name, number in numbers.items():
        if type(number) is not int or not 0 <= number < MAX_CLASSES:
            raise CadisError(
                f"In {path}, the class {name} has the number {json.dumps(number)[:40]}; number "
                f"classes from 0, below {MAX_CLASSES:,}."
            )
    names = {number: name for name, number in numbers.items()}
    classes = tuple(names.get(number, "-") for number in range(max(names) + 1))
    test = []
    if is_folder(folder / "server_dataset"):
        images = _read_pill_part(folder / "server_dataset", numbers)
        test = [replace(image, client=None) for image in images]  # they belong to the server
    return ImageFolder(_read_pill_part(folder / "client_dataset", numbers), test, classes)


def _read_pill_part(folder: Path, numbers: dict[str, int]) -> list[ImageFile]:
    """Return the images of ``client_dataset`` or ``server_dataset``."""
    labels = read_json_object(folder / "img_label_dict.json")
    inner = folder / "pill_cropped"
    image_folder = inner if is_folder(inner) else folder.parent / "pill_cropped"
    images = []
    for client, names in read_json_object(folder / "user_group_img.json").items():
        _check_image_names(client, names, folder)
        for name in names:
            label = labels.get(name)
            if not isinstance(label, str) or label not in numbers:
                raise CadisError(
                    f"The image {name} of client {client} in {folder} has no label in "
                    "img_label_dict.json with a number in label_hash.json; add it."
                )
            images.append(ImageFile(image_folder / name, numbers[label], client))
    return images


def _check_image_names(client: str, names: Any, folder: Path) -> None:
    subject = f"Client {client} in {folder / 'user_group_img.json'}"
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CadisError(f"{subject} must have a list of image names; correct it.")
    for name in names:
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
            raise CadisError(
                f"{subject} has the image {name}, which is not within pill_cropped; put it there, "
                "and give its path from there."
            )
