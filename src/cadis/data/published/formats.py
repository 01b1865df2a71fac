"""Published datasets: what their files are, and how IDX and CIFAR files are read."""

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

from cadis._io import shown
from cadis.data.examples import Scaling
from cadis.errors import CadisError

_UNSIGNED_BYTE = 0x08
_MOST_DIMENSIONS = 3
_PIXELS = 3 * 32 * 32

Rows: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Pictures (n, 3, 32, 32) and their labels (n,)."""

Read: TypeAlias = Callable[[Sequence[bytes], Sequence[Path]], Rows]


def parse_idx(content: bytes, path: Path) -> NDArray[np.uint8]:
    """Return the array of bytes in an IDX file, in which MNIST and its kin are published.

    The header: two zero bytes, the type of the numbers, how many dimensions, and the size of
    each as a big-endian number of four bytes.
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE:
        raise CadisError(
            f"{path} is not an IDX file of bytes; put the published file in its place."
        )
    if not 1 <= content[3] <= _MOST_DIMENSIONS:
        raise CadisError(
            f"{path} has an array of {content[3]} dimensions, neither pictures (3) nor labels (1); "
            "put the published file in its place."
        )
    start = 4 + 4 * content[3]
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4)]
    expected = start + math.prod(shape)
    if len(content) != expected:
        raise CadisError(
            f"{path} has {len(content):,} bytes where its header promises {expected:,}; "
            "it is damaged: put the published file in its place."
        )
    try:
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
    except ValueError:  # nothing at all, in a shape beyond all bounds
        raise CadisError(
            f"{path} has an array of shape {tuple(shape)}; it is damaged: put the published file "
            "in its place."
        ) from None


def parse_binary(content: bytes, label_bytes: int, path: Path) -> Rows:
    """Read CIFAR's binary version, rows of labels and pixels; the last of several labels counts."""
    width = label_bytes + _PIXELS
    if not content or len(content) % width:
        raise CadisError(
            f"{path} has {len(content):,} bytes, which is no multiple of {width:,}; it is not a "
            "CIFAR binary file, or damaged: put the published file in its place."
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, width)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1]


def parse_python(content: bytes, key: str, path: Path) -> Rows:
    """Read CIFAR's Python version, a pickled dictionary with labels under ``key``.

    It is not trusted: a pickle could run any command.
    """
    try:
        batch = _PlainUnpickler(io.BytesIO(content), encoding="latin1").load()
        pixels, labels = batch["data"], np.asarray(batch[key])
        if pixels.dtype != np.uint8 or labels.min() < 0 or labels.max() > 255:
            raise ValueError("its numbers are no bytes")
        return pixels.reshape(len(labels), 3, 32, 32), labels.astype(np.uint8)
    except CadisError as error:
        raise CadisError(f"{path} {error}") from None
    except Exception as error:  # whatever foreign bytes may raise
        why = " ".join(shown(error).split())
        raise CadisError(
            f"{path} is not a batch of CIFAR's Python version ({why}); "
            "put the published file in its place."
        ) from error


_MAKE_ARRAY = np.zeros(0).__reduce__()[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): _MAKE_ARRAY,  # until numpy 1
    ("numpy._core.multiarray", "_reconstruct"): _MAKE_ARRAY,  # since numpy 2
}


class _PlainUnpickler(pickle.Unpickler):
    """Builds numpy arrays and plain containers, nothing else.

    Many have only the Python version of CIFAR, and no library reads it without trust.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return what a pickle may name."""
        if (module, name) not in _ALLOWED:
            raise CadisError(
                f"wants to use {module}.{name}, which no CIFAR file does: it may be hostile and "
                "was not loaded; put the published file in its place."
            )
        return _ALLOWED[module, name]


@dataclass(frozen=True)
class Form:
    """One way in which a dataset is published.

    What files contain is given as SHA-256, or as MD5 where only that was published, after gunzip.
    Pickles other than the published ones are not opened: a single wrong bit may make them ask for
    all the memory.
    """

    folders: tuple[str, ...]  # where its files usually lie within a folder of datasets
    train: dict[str, str]  # names of the files of the training set, and what they contain
    test: dict[str, str]  # the same of the test set
    read: Read  # makes pictures and labels of the files of a set
    pickled: bool = False

    @property
    def files(self) -> dict[str, str]:
        """All files."""
        return self.train | self.test


@dataclass(frozen=True)
class Published:
    """A published dataset.

    What is downloaded is the archive, which contains the first form; without an archive, the
    files of the first form one by one, gzipped.
    """

    name: str  # as the user types it
    classes: tuple[str, ...]
    scaling: Scaling  # the usual constants
    forms: tuple[Form, ...]  # ways in which it may lie on disk
    mirrors: tuple[str, ...]  # addresses of folders that have it
    archive: str = ""


def _read_idx(contents: Sequence[bytes], paths: Sequence[Path]) -> Rows:
    """Read a file of pictures and a file of labels."""
    pictures, labels = (parse_idx(*pair) for pair in zip(contents, paths, strict=True))
    if pictures.ndim != 3 or labels.ndim != 1 or len(pictures) != len(labels):
        raise CadisError(
            f"{paths[0]} and {paths[1]} have arrays of shapes {pictures.shape} and "
            f"{labels.shape}, not pictures and as many labels; put the published files in place."
        )
    return pictures[:, None], labels


def _read_batches(
    parse: Callable[[bytes, Path], Rows], contents: Sequence[bytes], paths: Sequence[Path]
) -> Rows:
    """Read files that have both pictures and labels."""
    batches = [parse(*pair) for pair in zip(contents, paths, strict=True)]
    pictures = np.concatenate([pictures for pictures, _ in batches])
    return pictures, np.concatenate([labels for _, labels in batches])


def cifar_binary(label_bytes: int) -> Read:
    """Return the reader of the binary version, with so many labels before the pixels."""
    return partial(_read_batches, lambda c, path: parse_binary(c, label_bytes, path))


def cifar_python(key: str) -> Read:
    """Return the reader of the Python version, with the labels under a key."""
    return partial(_read_batches, lambda c, path: parse_python(c, key, path))


def idx_form(folders: tuple[str, ...], digests: Sequence[str]) -> Form:
    """Return the form of IDX files, given those of the training set, then of the test set."""
    names = [
        f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
    ]
    files = [(f"{name}-ubyte", digest) for name, digest in zip(names, digests, strict=True)]
    return Form(folders, dict(files[:2]), dict(files[2:]), _read_idx)


def numbered(name: str, *digests: str) -> dict[str, str]:
    """Name files numbered from 1, with what they contain."""
    return {name.format(number): digest for number, digest in enumerate(digests, start=1)}
