"""Published datasets: what their files are, and how they are read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from cadis.core import CadisError
from cadis.data.cifar import Rows, parse_binary, parse_python
from cadis.data.examples import Scaling
from cadis.data.idx import parse_idx

Read: TypeAlias = Callable[[Sequence[bytes], Sequence[Path]], Rows]


@dataclass(frozen=True)
class Form:
    """One way in which a dataset is published.

    Attributes:
        folders: where its files usually lie within a folder of datasets.
        train: names of the files of the training set, and what they contain.
        test: the same of the test set.
        read: makes pictures and labels of the files of a set.
        pickled: whether its files are pickles, of which other than the published ones are not
            opened: a single wrong bit may make them ask for all the memory.

    The contents are given as SHA-256, or as MD5 where only that was published, after gunzip.
    """

    folders: tuple[str, ...]
    train: dict[str, str]
    test: dict[str, str]
    read: Read
    pickled: bool = False

    @property
    def files(self) -> dict[str, str]:
        """All files."""
        return self.train | self.test


@dataclass(frozen=True)
class Published:
    """A published dataset.

    Attributes:
        name: as the user types it.
        classes: names of the classes.
        scaling: the usual constants.
        forms: ways in which it may lie on disk; the first is what is downloaded.
        archive: the file to be downloaded, which contains the first form; "" if its files are
            downloaded one by one, gzipped.
        mirrors: addresses of folders that have it.
    """

    name: str
    classes: tuple[str, ...]
    scaling: Scaling
    forms: tuple[Form, ...]
    archive: str
    mirrors: tuple[str, ...]


def _read_idx(contents: Sequence[bytes], paths: Sequence[Path]) -> Rows:
    """A file of pictures and a file of labels."""
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
    """Files that have both pictures and labels."""
    batches = [parse(*pair) for pair in zip(contents, paths, strict=True)]
    pictures = np.concatenate([pictures for pictures, _ in batches])
    return pictures, np.concatenate([labels for _, labels in batches])


def cifar_binary(label_bytes: int) -> Read:
    """Reads the binary version, with so many labels before the pixels."""
    return partial(_read_batches, lambda c, path: parse_binary(c, label_bytes, path))


def cifar_python(key: str) -> Read:
    """Reads the Python version, with the labels under a key."""
    return partial(_read_batches, lambda c, path: parse_python(c, key, path))


def idx_form(folders: tuple[str, ...], digests: Sequence[str]) -> Form:
    """Pictures and labels of the training set, then of the test set."""
    names = [
        f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
    ]
    files = [(f"{name}-ubyte", digest) for name, digest in zip(names, digests, strict=True)]
    return Form(folders, dict(files[:2]), dict(files[2:]), _read_idx)


def numbered(name: str, *digests: str) -> dict[str, str]:
    """Files numbered from 1, and what they contain."""
    return {name.format(number): digest for number, digest in enumerate(digests, start=1)}
