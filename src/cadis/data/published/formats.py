"""File formats of published datasets, and reading IDX and CIFAR files."""

import io
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cadis._io import to_printable
from cadis.data.samples import Scaling
from cadis.errors import CadisError

_UNSIGNED_BYTE = 0x08
_MAX_DIMENSIONS = 3
_CIFAR_PIXELS = 3 * 32 * 32

ImageArrays: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Images, (n, channels, height, width), and their labels, (n,)."""

Reader: TypeAlias = Callable[[Sequence[bytes], Sequence[Path]], ImageArrays]
"""A function that converts the contents of files to arrays; paths are for error messages."""


def parse_idx(content: bytes, path: Path) -> NDArray[np.uint8]:
    """Return the array in an IDX file, the format of MNIST and Fashion-MNIST.

    The header has two zero bytes, the data type, the number of dimensions, and the size of each
    dimension as a big-endian integer of four bytes.
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE:
        raise CadisError(f"{path} is not an IDX file of bytes; replace it with the published file.")
    if not 1 <= content[3] <= _MAX_DIMENSIONS:
        raise CadisError(
            f"{path} has an array of {content[3]} dimensions, neither images (3) nor labels (1); "
            "replace it with the published file."
        )
    start = 4 + 4 * content[3]
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4)]
    expected = start + math.prod(shape)
    if len(content) != expected:
        raise CadisError(
            f"{path} has {len(content):,} bytes, but its header says {expected:,}; it is "
            "damaged: replace it with the published file."
        )
    try:
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
    except ValueError:  # no data, and a shape that is too large
        raise CadisError(
            f"{path} has an array of shape {tuple(shape)}; it is damaged: replace it with the "
            "published file."
        ) from None


def parse_binary(content: bytes, label_bytes: int, path: Path) -> ImageArrays:
    """Read the binary version of CIFAR: each row has its labels, then its pixels.

    CIFAR-100 has two labels per row, the coarse and the fine class; the last label is used.
    """
    width = label_bytes + _CIFAR_PIXELS
    if not content or len(content) % width:
        raise CadisError(
            f"{path} has {len(content):,} bytes, which is not a multiple of {width:,}; it is not "
            "a CIFAR binary file, or damaged: replace it with the published file."
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, width)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1]


def parse_python(content: bytes, key: str, path: Path) -> ImageArrays:
    """Read the Python version of CIFAR, a pickled dictionary with labels under ``key``.

    A pickle could run any command, so only pickles of arrays and plain containers are loaded.
    """
    try:
        batch = _PlainUnpickler(io.BytesIO(content), encoding="latin1").load()
        pixels, labels = batch["data"], np.asarray(batch[key])
        if pixels.dtype != np.uint8 or labels.min() < 0 or labels.max() > 255:
            raise ValueError("its values are not bytes")
        return pixels.reshape(len(labels), 3, 32, 32), labels.astype(np.uint8)
    except CadisError as error:
        raise CadisError(f"{path} {error}") from None
    except Exception as error:  # damaged data may raise any exception
        reason = " ".join(to_printable(error).split())
        raise CadisError(
            f"{path} is not a batch of the Python version of CIFAR ({reason}); "
            "replace it with the published file."
        ) from error


_MAKE_ARRAY = np.zeros(0).__reduce__()[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): _MAKE_ARRAY,  # until numpy 1
    ("numpy._core.multiarray", "_reconstruct"): _MAKE_ARRAY,  # since numpy 2
}


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler that builds only numpy arrays and plain containers.

    Many users have only the Python version of CIFAR, and no library reads it safely.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return an allowed class or function."""
        if (module, name) not in _ALLOWED:
            raise CadisError(  # parse_python puts the path before this message
                f"uses {module}.{name}, which no CIFAR file does: it may be malicious and was not "
                "loaded; replace it with the published file."
            )
        return _ALLOWED[module, name]


@dataclass(frozen=True)
class FileFormat:
    """Files of one version of a published dataset.

    Checksums are computed from the decompressed files: SHA-256, or MD5 if only MD5 was published.
    Pickles with a wrong checksum are not opened, because a damaged pickle may request all memory.
    """

    folders: tuple[str, ...]  # usual folders of its files, within a folder of datasets
    train: dict[str, str]  # files of the training set: name -> checksum
    test: dict[str, str]  # files of the test set: name -> checksum
    read: Reader
    is_pickle: bool = False

    @property
    def checksums(self) -> dict[str, str]:
        """Checksums of all files, by file name."""
        return self.train | self.test


@dataclass(frozen=True)
class PublishedDataset:
    """A published dataset.

    The mirrors have the first format: as an archive if there is one, else as single gzipped files.
    The other formats are only read from disk.
    """

    name: str
    classes: tuple[str, ...]
    scaling: Scaling  # the usual constants of the dataset
    formats: tuple[FileFormat, ...]  # versions that may be on disk
    mirrors: tuple[str, ...]  # addresses of folders to download from
    archive: str = ""  # file name of the archive; "" if files are downloaded one by one

    @property
    def mirror_format(self) -> FileFormat:
        """Format of the files on the mirrors; the other formats are only read from disk."""
        return self.formats[0]


def _read_idx(contents: Sequence[bytes], paths: Sequence[Path]) -> ImageArrays:
    """Read a file of images and a file of labels."""
    images, labels = (parse_idx(*pair) for pair in zip(contents, paths, strict=True))
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise CadisError(
            f"{paths[0]} and {paths[1]} have arrays of shapes {images.shape} and {labels.shape}, "
            "not images and as many labels; replace them with the published files."
        )
    return images[:, None], labels


def _read_batches(
    parse: Callable[[bytes, Path], ImageArrays], contents: Sequence[bytes], paths: Sequence[Path]
) -> ImageArrays:
    """Read files that have both images and labels."""
    batches = [parse(*pair) for pair in zip(contents, paths, strict=True)]
    images = np.concatenate([images for images, _ in batches])
    return images, np.concatenate([labels for _, labels in batches])


def make_cifar_binary_reader(label_bytes: int) -> Reader:
    """Return a reader of the binary version with ``label_bytes`` labels before the pixels."""
    return partial(_read_batches, lambda content, path: parse_binary(content, label_bytes, path))


def make_cifar_python_reader(key: str) -> Reader:
    """Return a reader of the Python version with the labels under a key."""
    return partial(_read_batches, lambda content, path: parse_python(content, key, path))


def make_idx_format(
    folders: tuple[str, ...],
    *,
    train_images: str,
    train_labels: str,
    test_images: str,
    test_labels: str,
) -> FileFormat:
    """Return the format of a dataset of four IDX files, given the checksum of each file.

    Args:
        folders: usual folders of the files.
        train_images: checksum of the file with the training images.
        train_labels: checksum of the file with the training labels.
        test_images: checksum of the file with the test images.
        test_labels: checksum of the file with the test labels.
    """
    train = {"train-images-idx3-ubyte": train_images, "train-labels-idx1-ubyte": train_labels}
    test = {"t10k-images-idx3-ubyte": test_images, "t10k-labels-idx1-ubyte": test_labels}
    return FileFormat(folders, train, test, _read_idx)


def number_files(name: str, *checksums: str) -> dict[str, str]:
    """Return the checksums of files whose names are numbered from 1, by file name."""
    return {name.format(number): checksum for number, checksum in enumerate(checksums, start=1)}
