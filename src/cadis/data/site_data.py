"""One owner's data where they are: a folder of pictures, or a file of tensors."""

import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from cadis._io import NO_CALLBACKS, Callbacks, at_home, is_folder, shown
from cadis.data.examples import Dataset, Examples, Scaling
from cadis.data.holding_out import held_out_tenth
from cadis.data.images import load_images
from cadis.data.published import picture_cache
from cadis.data.table_files import TABLE_SUFFIXES
from cadis.errors import CadisError

_WHITE = {torch.uint8: 255, torch.uint16: 65535}
"""The highest number of types in which pictures are kept."""


def load_own(
    place: Path,
    classes: Sequence[str],
    image_size: int = 224,
    callbacks: Callbacks = NO_CALLBACKS,
    cache: bool = True,
) -> Dataset:
    """Load an owner's data; no more than the names of the classes is known elsewhere.

    A tenth of each class is set apart for testing, if the owner has not done so.

    Args:
        place: a folder of pictures as :func:`cadis.data.image_folder.read_album` has them; or a
            file ``.safetensors`` or ``.npz`` of ``inputs`` (n, ...) and ``labels`` (n,), perhaps
            with ``test_inputs`` and ``test_labels``. Numbers of 8 bits without a sign are divided
            by 255 and those of 16 bits by 65,535; others are taken as they are.
        classes: names of all classes, in the order of their numbers.
        image_size: pixels a side to which pictures are resized.
        callbacks: called as it goes on.
        cache: whether decoded pictures are kept in the user's cache.
    """
    place = at_home(place)
    if is_folder(place):
        return load_images(place, image_size, picture_cache(cache), callbacks, classes)
    tensors = _read(place)
    everything = _examples(tensors, "", shown(place), len(classes))
    if "test_inputs" in tensors or "test_labels" in tensors:
        train, test = everything, _examples(tensors, "test_", shown(place), len(classes))
    else:
        apart = held_out_tenth(everything.labels.tolist(), [None] * len(everything))
        train, test = everything.take(~apart), everything.take(apart)
    return Dataset(shown(place), train, test, tuple(classes))


def _examples(tensors: dict[str, Tensor], prefix: str, place: str, num_classes: int) -> Examples:
    """One set, each of whose labels is the number of a class."""
    names = [f"{prefix}inputs", f"{prefix}labels"]
    if missing := [name for name in names if name not in tensors]:
        raise CadisError(f"{place} has no tensor '{missing[0]}'; it has: {', '.join(tensors)}.")
    for name in names:
        if tensors[name].is_complex() or not tensors[name].dim():
            raise CadisError(
                f"{place} has '{name}' of shape {tuple(tensors[name].shape)} and type "
                f"{tensors[name].dtype}; give one row of real numbers for each sample."
            )
    inputs, labels = (tensors[name] for name in names)
    if labels.is_floating_point() and (labels.double() % 1 != 0).any():  # NaN is not whole either
        raise CadisError(f"{place} has '{names[1]}' that are not whole; give numbers of classes.")
    scaling = None
    if inputs.dtype == torch.uint8 and inputs.dim() > 2:
        # Pictures stay bytes, a quarter of the memory, and are scaled when they are used.
        channels = inputs.shape[1] if inputs.dim() == 4 else 1
        scaling = Scaling((0.0,) * channels, (1.0,) * channels)
    elif inputs.dtype in _WHITE:
        inputs = inputs.float() / _WHITE[inputs.dtype]
    else:
        inputs = inputs.float()
    examples = Examples(inputs, labels.long(), scaling)
    examples.check(f"The test set in {place}" if prefix else place)
    highest = int(examples.labels.max())
    if highest >= num_classes:
        raise CadisError(
            f"{place} has label {highest}, but there are {num_classes} classes, numbered from 0."
        )
    return examples


def _read(place: Path) -> dict[str, Tensor]:
    """Named tensors, without running anything that a file may contain."""
    if place.suffix in TABLE_SUFFIXES:
        raise CadisError(
            f"{shown(place)} is a table, which every site would scale otherwise; make tensors of "
            "all sites' tables in one way, and save them as .safetensors or .npz."
        )
    if place.suffix not in (".npz", ".safetensors"):
        raise CadisError(
            f"{shown(place)} is neither a folder of pictures nor a .safetensors or .npz file."
        )
    try:
        if not stat.S_ISREG(place.stat().st_mode):  # reading a pipe might never end
            raise ValueError("it is not an ordinary file")
        if place.suffix == ".safetensors":
            return load_file(place)
        with zipfile.ZipFile(place):  # numpy would read other kinds of files too
            pass
        with np.load(place, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except Exception as error:  # whatever a damaged file may raise
        why = " ".join(str(error).split()).removesuffix(".") or type(error).__name__
        raise CadisError(
            f"{shown(place)} cannot be read: {shown(why)}; save arrays of numbers there again."
        ) from None
