"""Unit vectors and their cosines."""

import torch
from torch import Tensor


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1; those of length 0 stay as they are."""
    norms = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(norms > 0, norms, 1)


def cosines(vectors: Tensor) -> Tensor:
    """How alike vectors of length 1 are, each to itself exactly 1, (n, n)."""
    return (vectors @ vectors.T).clamp(-1, 1).fill_diagonal_(1)
