"""Pictures of noise, where only their number and size matter."""

from typing import TypeAlias

import torch
from torch import Tensor

Pair: TypeAlias = tuple[Tensor, Tensor]
"""Inputs and labels."""


def random_pictures(count: int, seed: int, shape: tuple[int, int, int] = (1, 28, 28)) -> Pair:
    """Pictures of ten classes, of MNIST's size if nobody says."""
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(count, *shape, generator=generator),
        torch.randint(0, 10, (count,), generator=generator),
    )
