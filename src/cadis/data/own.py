"""One owner's data where they are: a folder of pictures, or a file of tensors."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cadis.core import CadisError
from cadis.data.examples import Dataset, Examples, Scaling
from cadis.data.images import held_out, load_images
from cadis.data.library import cache_folder
from cadis.data.listener import SILENT, Listener


def load_own(
    place: Path, classes: Sequence[str], image_size: int = 224, listener: Listener = SILENT
) -> Dataset:
    """An owner's data; no more than the names of the classes is known elsewhere.

    A tenth of each class is set apart for testing, if the owner has not done so.

    Args:
        place: a folder of pictures as :func:`cadis.data.album.read_album` has them; or a file
            ``.safetensors`` or ``.npz`` of ``inputs`` (n, ...) and ``labels`` (n,), perhaps with
            ``test_inputs`` and ``test_labels``. Bytes are divided by 255.
        classes: names of all classes, in the order of their numbers.
        image_size: pixels a side to which pictures are resized.
        listener: hears how it goes.
    """
    place = place.expanduser()
    if place.is_dir():
        return load_images(place, image_size, cache_folder() / "pictures", listener, classes)
    tensors = _read(place)
    if missing := [name for name in ("inputs", "labels") if name not in tensors]:
        raise CadisError(f"{place} has no tensor '{missing[0]}'; it has: {', '.join(tensors)}.")
    everything = _examples(tensors["inputs"], tensors["labels"])
    everything.check(str(place))
    if "test_inputs" in tensors and "test_labels" in tensors:
        train, test = everything, _examples(tensors["test_inputs"], tensors["test_labels"])
        test.check(f"The test set in {place}")
    else:
        labels = everything.labels.tolist()
        held = held_out(labels, [None] * len(labels))
        apart = torch.tensor([n in held for n in range(len(labels))])
        train, test = (everything.take(which.nonzero().flatten()) for which in (~apart, apart))
    highest = int(torch.cat([train.labels, test.labels]).max())
    if highest >= len(classes):
        raise CadisError(
            f"{place} has label {highest}, but there are {len(classes)} classes, numbered from 0."
        )
    return Dataset(str(place), train, test, tuple(classes))


def _examples(inputs: Tensor, labels: Tensor) -> Examples:
    if inputs.dtype == torch.uint8:
        channels = inputs.shape[1] if inputs.dim() == 4 else 1
        return Examples(inputs, labels.long(), Scaling((0.0,) * channels, (1.0,) * channels))
    return Examples(inputs.float(), labels.long())


def _read(place: Path) -> dict[str, Tensor]:
    """Named tensors, without running anything that a file may contain."""
    try:
        if place.suffix == ".npz":
            with np.load(place, allow_pickle=False) as arrays:
                return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        if place.suffix == ".safetensors":
            return load_file(place)
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        raise CadisError(f"{place} cannot be read: {error}") from None
    raise CadisError(f"{place} is neither a folder of pictures nor a .safetensors or .npz file.")
