"""Random images, for benchmarks in which only their number and size matter."""

from typing import TypeAlias

import torch
from torch import Tensor

Pair: TypeAlias = tuple[Tensor, Tensor]
"""Inputs and labels."""


def make_random_images(count: int, seed: int, shape: tuple[int, int, int] = (1, 28, 28)) -> Pair:
    """Return random images of ten classes, by default of the size of MNIST."""
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(count, *shape, generator=generator),
        torch.randint(0, 10, (count,), generator=generator),
    )
