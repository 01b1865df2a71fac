"""The built-in dataset: handwritten digits of scikit-learn.

Importing scikit-learn takes as long as importing torch, so its data file is read directly. If the
file has an unexpected content, scikit-learn loads it.
"""

import gzip
import hashlib
import io
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cadis._io import read_regular
from cadis.data.preprocessing import ImagePreprocessing
from cadis.data.samples import Dataset, Samples, Scaling

_SHA256 = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"
"""Checksum of the decompressed content of ``sklearn/datasets/data/digits.csv.gz``."""

_TEST_SHARE = 0.2

_Integers = NDArray[np.int64]


def digits() -> Dataset:
    """Load 1,797 handwritten digits of 8 x 8 pixels.

    Four fifths are the training set and one fifth is the test set. The split is always the same.

    Example:
        >>> from cadis.data import digits
        >>> dataset = digits()
        >>> dataset.train.inputs.shape
        torch.Size([1437, 1, 8, 8])
        >>> len(dataset.test), dataset.num_classes
        (360, 10)
    """
    rows = _read_file()
    if rows is None:  # another version of scikit-learn may store the data differently
        from sklearn.datasets import load_digits  # noqa: PLC0415

        bunch = load_digits()
        rows = np.column_stack([bunch.data, bunch.target]).astype(np.int64)
    pixels = torch.tensor(rows[:, :-1], dtype=torch.float32).view(-1, 1, 8, 8) / 16
    labels = torch.tensor(rows[:, -1], dtype=torch.int64)
    train, test = map(torch.from_numpy, split_stratified(rows[:, -1], _TEST_SHARE))
    mean, deviation = pixels[train].mean(), pixels[train].std()
    samples = Samples((pixels - mean) / deviation, labels)
    names = tuple(map(str, range(10)))
    scaling = Scaling((float(mean),), (float(deviation),))  # for new images, where 255 is white
    return Dataset(
        "digits",
        samples.take(train),
        samples.take(test),
        names,
        preprocessing=ImagePreprocessing(1, 8, 8, scaling),
    )


def _read_file() -> _Integers | None:
    """Return one row per digit, 64 pixels and the label; None if the checksum is wrong."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        return None
    try:
        path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
        text = gzip.decompress(read_regular(path))
    except (OSError, EOFError):
        return None
    if hashlib.sha256(text).hexdigest() != _SHA256:
        return None
    return np.loadtxt(io.BytesIO(text), dtype=np.int64, delimiter=",")


def split_stratified(labels: _Integers, share: float) -> tuple[_Integers, _Integers]:
    """Return shuffled indices of the training set and of the test set.

    ``sklearn.model_selection.train_test_split`` with ``stratify`` and ``random_state=0`` returns
    the same indices.
    """
    generator = np.random.RandomState(0)  # the same type of generator as in scikit-learn
    counts = np.bincount(labels)
    num_test = int(np.ceil(share * len(labels)))
    train_counts = _apportion(counts, len(labels) - num_test, generator)
    test_counts = _apportion(counts - train_counts, num_test, generator)
    train, test = list[_Integers](), list[_Integers]()
    for label, (num_train, num_held_out) in enumerate(zip(train_counts, test_counts, strict=True)):
        members = generator.permutation(np.flatnonzero(labels == label))
        train.append(members[:num_train])
        test.append(members[num_train : num_train + num_held_out])
    shuffled = [generator.permutation(np.concatenate(part)) for part in (train, test)]
    return shuffled[0], shuffled[1]


def _apportion(counts: _Integers, total: int, generator: np.random.RandomState) -> _Integers:
    """Split a total in proportion to counts, (classes,).

    This is the largest remainder method; ties are broken at random.
    """
    exact = counts / counts.sum() * total
    parts: _Integers = np.floor(exact).astype(np.int64)
    remainders = exact - parts
    for value in np.unique(remainders)[::-1]:
        ties = np.flatnonzero(remainders == value)
        if (missing := total - parts.sum()) > 0:
            size = min(len(ties), missing)
            parts[generator.choice(ties, size=size, replace=False)] += 1
    return parts
