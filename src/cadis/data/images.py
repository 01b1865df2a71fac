"""``images:FOLDER``: a user's own pictures as a dataset."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from cadis._io import Callbacks, shown
from cadis.data.dicom import check_dicom_extra, is_dicom
from cadis.data.examples import Dataset, Examples, Scaling, positions_by_owner
from cadis.data.holding_out import held_out_tenth
from cadis.data.image_folder import LeftOut, Picture, read_album
from cadis.data.picture_cache import decode
from cadis.data.preprocessing import PicturePreprocessing
from cadis.errors import CadisError

_IMAGENET = Scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_NAMED = 10
_KINDS_NAMED = 3


def load_images(
    folder: Path, size: int, cache: Path | None, callbacks: Callbacks, classes: Sequence[str] = ()
) -> Dataset:
    """Load the pictures in a folder, as :func:`read_album` finds them.

    Without a test set of its own, a tenth of the pictures of each class is set apart. Pictures
    are resized to ``size`` pixels a side, and kept in the cache, if there is one. ``classes`` are
    the names of all classes that there are, if others have more of them.
    """
    album = read_album(folder)
    _tell_left_out(album.left_out, callbacks)
    if classes:
        album = album.numbered_as(classes, folder)
    train, test = album.train, album.test
    if not test:
        apart = held_out_tenth([p.label for p in train], [p.client for p in train]).tolist()
        train = [picture for picture, held in zip(album.train, apart, strict=True) if not held]
        test = [picture for picture, held in zip(album.train, apart, strict=True) if held]
    pictures = [*train, *test]
    if any(is_dicom(picture.path) for picture in pictures):
        check_dicom_extra()
    decoded = decode([picture.path for picture in pictures], size, cache, callbacks, str(folder))
    _tell_broken(pictures, decoded.broken, callbacks)
    _tell_animated([pictures[number] for number in decoded.animated], callbacks)
    train, test = (
        [picture for n, picture in enumerate(part, start) if n not in decoded.broken]
        for part, start in ((train, 0), (test, len(train)))
    )
    left = {picture.client for picture in train}
    for client in dict.fromkeys(picture.client for picture in album.train):
        if client not in left:
            callbacks.say(f"Left out {client}, which has no picture to train on that can be read.")
    for label in sorted({picture.label for picture in train} - {p.label for p in test}):
        callbacks.say(f"No picture of {album.classes[label]} is left for testing; add some.")
    if not train or not test:
        raise CadisError(f"{folder} has too few pictures that can be read; add some.")
    # Pillow's rows of pixels are torch's pictures with the channels last.
    pixels = torch.from_numpy(decoded.pixels).permute(0, 3, 1, 2)  # (n, 3, size, size)
    labels = torch.tensor([picture.label for picture in [*train, *test]])
    everything = Examples(pixels, labels, _IMAGENET)
    return Dataset(
        f"images:{folder}",
        everything.take(slice(0, len(train))),
        everything.take(slice(len(train), None)),
        album.classes,
        positions_by_owner([picture.client for picture in train]),
        positions_by_owner([picture.client for picture in test]),
        preprocessing=PicturePreprocessing(3, size, size, _IMAGENET),
    )


def _tell_left_out(left_out: LeftOut, callbacks: Callbacks) -> None:
    for link in left_out.links:
        callbacks.say(
            f"Skipped {shown(link)}: it is a link to a folder, and these are not followed."
        )
    for folder in left_out.empty:
        callbacks.say(f"Left out {shown(folder)}: there is no picture in it.")
    if others := left_out.others:
        callbacks.say(
            f"Files left out, as they are no pictures: {len(others):,}, such as "
            f"{shown(others[0])}{_kinds(others)}."
        )


def _kinds(files: Sequence[Path]) -> str:
    """Return how many files of the most frequent kinds there are, if they are of several."""
    times = Counter(map(_kind, files))
    if len(times) == 1:
        return ""
    named = times.most_common(_KINDS_NAMED)
    told = [f"{number:,} {shown(kind)}" for kind, number in named]
    if more := len(files) - sum(number for _, number in named):
        told.append(f"{more:,} more")
    return f" ({', '.join(told)})"


def _kind(file: Path) -> str:
    """Return how a file's name ends, both parts of .nii.gz; all of a name without an ending."""
    ends = file.suffixes[-2:] if file.suffix.lower() == ".gz" else file.suffixes[-1:]
    return "".join(ends).lower() or file.name


def _tell_broken(pictures: Sequence[Picture], broken: dict[int, str], callbacks: Callbacks) -> None:
    for number in list(broken)[:_NAMED]:
        callbacks.say(f"Skipped {shown(pictures[number].path)}: {broken[number]}.")
    if len(broken) > _NAMED:
        callbacks.say(f"Skipped {len(broken) - _NAMED} more pictures that cannot be read.")


def _tell_animated(pictures: Sequence[Picture], callbacks: Callbacks) -> None:
    if pictures:
        several = f"{len(pictures)} pictures have" if len(pictures) > 1 else "One picture has"
        callbacks.say(
            f"{several} several frames, of which only the first is used: "
            f"{', '.join(shown(picture.path) for picture in pictures[:_NAMED])}"
            f"{', ...' if len(pictures) > _NAMED else '.'}"
        )
