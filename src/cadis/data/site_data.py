"""Data of one Flower site: a folder of images, or a file of tensors."""

import math
import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from cadis._io import (
    NO_CALLBACKS,
    Callbacks,
    check_file_size,
    check_list,
    check_memory,
    check_path,
    is_folder,
    to_printable,
)
from cadis.data.holdout import hold_out_tenth_per_class
from cadis.data.images import load_images
from cadis.data.published import get_image_cache_folder
from cadis.data.samples import Dataset, Samples, Scaling
from cadis.data.table_files import TABLE_SUFFIXES
from cadis.errors import CadisError

_FLOAT32 = 4
"""Bytes of a number of the inputs."""

_MAX_PIXEL_VALUE = {torch.uint8: 255, torch.uint16: 65535}
"""Largest pixel value, which is white, of each integer type of images."""


def load_site_data(
    path: Path,
    classes: Sequence[str],
    image_size: int = 224,
    callbacks: Callbacks = NO_CALLBACKS,
    cache: bool = True,
) -> Dataset:
    """Load the data of one site; other sites have no access to them.

    Without test data, a tenth of each class is held out.

    Args:
        path: folder of images, see :func:`cadis.data.image_folder.read_image_folder`; or a file
            ``.safetensors`` or ``.npz`` with ``inputs`` (n, ...) and ``labels`` (n,), and
            optionally ``test_inputs`` and ``test_labels``. Inputs of type uint8 are divided by
            255, and inputs of type uint16 by 65,535. Other inputs are converted to float32.
        classes: names of the classes of all sites; a label is an index into them.
        image_size: width and height in pixels to which images are resized.
        callbacks: called with the progress and with warnings.
        cache: whether decoded images are kept in the user's cache.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> from cadis.data import load_site_data
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "site.npz")
        ...     np.savez(path, inputs=np.zeros((20, 3)), labels=np.arange(20) % 2)
        ...     dataset = load_site_data(path, classes=("no", "yes"))
        >>> len(dataset.train), len(dataset.test)
        (18, 2)
    """
    path, classes = check_path("path", path), check_list("classes", classes)
    if is_folder(path):
        cache_folder = get_image_cache_folder() if cache else None
        return load_images(path, image_size, cache_folder, callbacks, classes)
    name, tensors = to_printable(path), _read_tensors(path)
    train = _to_samples(tensors, "", name, len(classes))
    if "test_inputs" in tensors or "test_labels" in tensors:
        test = _to_samples(tensors, "test_", name, len(classes))
    else:
        is_test = hold_out_tenth_per_class(train.labels.tolist(), [None] * len(train))
        train, test = train.take(~is_test), train.take(is_test)
    return Dataset(name, train, test, tuple(classes))


def _to_samples(tensors: dict[str, Tensor], prefix: str, path: str, num_classes: int) -> Samples:
    """Convert tensors of a file to samples.

    Args:
        tensors: tensors of the file by name.
        prefix: prefix of the names, "" or "test_".
        path: path of the file, for error messages.
        num_classes: number of classes.
    """
    names = [f"{prefix}inputs", f"{prefix}labels"]
    _check_tensors(tensors, names, path)
    inputs, labels = (tensors[name] for name in names)
    scaling = None
    if inputs.dtype == torch.uint8 and inputs.dim() > 2:
        # Images stay uint8, which needs a quarter of the memory of float32. The scaling with mean 0
        # and deviation 1 divides each batch by 255.
        channels = inputs.shape[1] if inputs.dim() == 4 else 1
        scaling = Scaling((0.0,) * channels, (1.0,) * channels)
    elif inputs.dtype in _MAX_PIXEL_VALUE:
        inputs = inputs.float() / _MAX_PIXEL_VALUE[inputs.dtype]
    else:
        inputs = inputs.float()
    samples = Samples(inputs, labels.long(), scaling)
    samples.check(f"The test set in {path}" if prefix else path)
    highest = int(samples.labels.max())
    if highest >= num_classes:
        raise CadisError(
            f"{path} has the label {highest}, but there are {num_classes} classes; number them "
            "from 0."
        )
    return samples


def _check_tensors(tensors: dict[str, Tensor], names: Sequence[str], path: str) -> None:
    """Raise an error if inputs or labels are missing or have the wrong type."""
    if missing := [name for name in names if name not in tensors]:
        raise CadisError(
            f"{path} has no tensor '{missing[0]}'; it has: {', '.join(tensors)}. Rename or add it."
        )
    for name in names:
        if tensors[name].is_complex() or not tensors[name].dim():
            raise CadisError(
                f"{path} has '{name}' of shape {tuple(tensors[name].shape)} and type "
                f"{tensors[name].dtype}; give one row of real numbers for each sample."
            )
    labels = tensors[names[1]]
    if labels.is_floating_point() and (labels.double() % 1 != 0).any():  # also true for NaN
        raise CadisError(f"{path} has '{names[1]}' that are not integers; give class numbers.")


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors by name; code in the file is never run."""
    name = to_printable(path)
    if path.suffix in TABLE_SUFFIXES:
        raise CadisError(
            f"{name} is a table. Tables of sites cannot be used, because each site would scale its "
            "columns differently; convert the tables of all sites to tensors in the same way, and "
            "save them as .safetensors or .npz."
        )
    if path.suffix not in (".npz", ".safetensors"):
        raise CadisError(
            f"{name} is neither a folder of images nor a .safetensors or .npz file; give the path "
            "of one of these."
        )
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe might never end
            raise ValueError("it is not a regular file")
        if path.suffix == ".safetensors":
            check_file_size(path, _FLOAT32)  # of bytes, which are converted
            return load_file(path)
        _check_arrays(path, name)
        with np.load(path, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except CadisError:
        raise
    except Exception as error:  # a damaged file may raise any exception
        reason = " ".join(str(error).split()).removesuffix(".") or type(error).__name__
        raise CadisError(
            f"{name} cannot be read: {to_printable(reason)}; save the arrays again."
        ) from None


def _check_arrays(path: Path, name: str) -> None:
    """Raise an error if the arrays of an .npz file are too large, or other than their headers say.

    numpy allocates what a header says, before it reads the array.
    """
    nbytes, headers = 0.0, np.lib.format
    with zipfile.ZipFile(path) as archive:  # np.load would accept other file types too
        for member in archive.infolist():
            with archive.open(member) as file:
                read = _HEADER_READERS[headers.read_magic(file)]
                shape, _, dtype = read(file)
                if dtype.hasobject:
                    raise ValueError("Object arrays cannot be loaded")
                num_elements = math.prod(shape)
                if file.tell() + num_elements * dtype.itemsize != member.file_size:
                    raise ValueError(f"the array {member.filename} does not have its shape {shape}")
            nbytes += member.file_size + 2 * _FLOAT32 * num_elements  # inputs are converted
    check_memory(nbytes, name, "check that it is the right file", path.stat().st_size)


_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
