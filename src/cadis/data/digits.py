"""The embedded dataset: scikit-learn's handwritten digits.

scikit-learn takes as long to import as torch, so its file is read without it; where that is not
the file that is known here, scikit-learn itself reads it.
"""

import gzip
import hashlib
import io
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cadis.data.examples import Dataset, Examples, Scaling
from cadis.data.preprocessing import PicturePreprocessing

_SHA256 = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"
"""Of what is in ``sklearn/datasets/data/digits.csv.gz``, unzipped."""

_TESTED = 0.2
"""The part that is for testing."""

_Numbers = NDArray[np.int64]


def digits() -> Dataset:
    """Load 1,797 handwritten digits of 8 x 8 pixels.

    Four fifths for training, one fifth for testing, the same split every time.
    """
    numbers = _read_file()
    if numbers is None:  # scikit-learn keeps it otherwise
        from sklearn.datasets import load_digits  # noqa: PLC0415

        bunch = load_digits()
        numbers = np.column_stack([bunch.data, bunch.target]).astype(np.int64)
    pixels = torch.tensor(numbers[:, :-1], dtype=torch.float32).view(-1, 1, 8, 8) / 16
    labels = torch.tensor(numbers[:, -1], dtype=torch.int64)
    train, test = map(torch.from_numpy, stratified_split(numbers[:, -1], _TESTED))
    mean, deviation = pixels[train].mean(), pixels[train].std()
    examples = Examples((pixels - mean) / deviation, labels)
    names = tuple(map(str, range(10)))
    scaling = Scaling((float(mean),), (float(deviation),))  # of other pictures: 255 is white
    how = PicturePreprocessing(1, 8, 8, scaling)
    return Dataset("digits", examples.take(train), examples.take(test), names, preprocessing=how)


def _read_file() -> _Numbers | None:
    """Return a row for each digit, 64 pixels and a label; None if it is not the file we know."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        return None
    try:
        content = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
        text = gzip.decompress(content.read_bytes())
    except (OSError, EOFError):
        return None
    if hashlib.sha256(text).hexdigest() != _SHA256:
        return None
    return np.loadtxt(io.BytesIO(text), dtype=np.int64, delimiter=",")


def stratified_split(labels: _Numbers, part: float) -> tuple[_Numbers, _Numbers]:
    """Return shuffled positions for training and for testing.

    As ``sklearn.model_selection.train_test_split`` with ``stratify`` and ``random_state=0``.
    """
    generator = np.random.RandomState(0)  # the generator that it has always been
    counts = np.bincount(labels)
    tested = int(np.ceil(part * len(labels)))
    for_training = _shares(counts, len(labels) - tested, generator)
    for_testing = _shares(counts - for_training, tested, generator)
    train, test = list[_Numbers](), list[_Numbers]()
    for label, (first, second) in enumerate(zip(for_training, for_testing, strict=True)):
        own = generator.permutation(np.flatnonzero(labels == label))
        train.append(own[:first])
        test.append(own[first : first + second])
    shuffled = [generator.permutation(np.concatenate(side)) for side in (train, test)]
    return shuffled[0], shuffled[1]


def _shares(counts: _Numbers, total: int, generator: np.random.RandomState) -> _Numbers:
    """Return how many of each class, ``total`` together, as near to their shares as can be."""
    wanted = counts / counts.sum() * total
    shares: _Numbers = np.floor(wanted).astype(np.int64)
    rest = wanted - shares
    for value in np.unique(rest)[::-1]:
        places = np.flatnonzero(rest == value)
        if (missing := total - shares.sum()) > 0:
            few = min(len(places), missing)
            shares[generator.choice(places, size=few, replace=False)] += 1
    return shares
