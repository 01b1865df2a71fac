"""Parts of published datasets, and the digits with two classes.

Each function is a dataset: ``cadis run --dataset experiments/subsets.py:fashion``. The files of the
datasets are searched in ``$CADIS_DATA``.
"""

from dataclasses import replace

import torch

from cadis.data import Dataset, load

_TRAIN, _TEST = 7500, 2500
"""Number of samples: 150 for each of 50 clients."""


def fashion() -> Dataset:
    """Return 7,500 training and 2,500 test samples of Fashion-MNIST."""
    return _draw("fashion-mnist")


def mnist() -> Dataset:
    """Return 7,500 training and 2,500 test samples of MNIST."""
    return _draw("mnist")


def cifar10() -> Dataset:
    """Return 7,500 training and 2,500 test samples of CIFAR-10."""
    return _draw("cifar10")


def even_and_odd() -> Dataset:
    """Return the digits of scikit-learn with two classes: even and odd digits."""
    digits = load("digits")
    train, test = (replace(part, labels=part.labels % 2) for part in (digits.train, digits.test))
    return replace(digits, train=train, test=test, classes=("even", "odd"))


def _draw(name: str) -> Dataset:
    dataset = load(name)
    rng = torch.Generator().manual_seed(0)
    train = torch.randperm(len(dataset.train.labels), generator=rng)[:_TRAIN]
    test = torch.randperm(len(dataset.test.labels), generator=rng)[:_TEST]
    return replace(dataset, train=dataset.train.take(train), test=dataset.test.take(test))
