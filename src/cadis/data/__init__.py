"""Datasets as tensors."""

from collections.abc import Callable

from cadis.data.digits import digits
from cadis.data.examples import Dataset, Examples, Subsets

DATASETS: dict[str, Callable[[], Dataset]] = {"digits": digits}

__all__ = ["DATASETS", "Dataset", "Examples", "Subsets", "digits"]
