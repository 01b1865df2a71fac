"""Normalization and cosine similarity of vectors."""

import torch
from torch import Tensor

MIN_MODEL_NORM = 10.0
"""A limit relative to the norm of the model is relative to at least this norm, so that small
models, and a model of zeros, can learn."""


def normalize(vectors: Tensor) -> Tensor:
    """Scale vectors, (..., d), to the L2 norm 1; zero vectors do not change."""
    norms = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(norms > 0, norms, 1)


def compute_cosines(vectors: Tensor) -> Tensor:
    """Return the cosine similarities, (n, n), of n unit vectors, (n, d); the diagonal is 1."""
    return (vectors @ vectors.T).clamp(-1, 1).fill_diagonal_(1)


def compute_kernel(vectors: Tensor, others: Tensor | None = None) -> Tensor:
    """Return max(0, cosine)^2 of all pairs of vectors, (n, m); 1 for a vector with itself."""
    units = normalize(vectors)
    if others is None:
        return (units @ units.T).clamp(0, 1).square().fill_diagonal_(1)
    return (units @ normalize(others).T).clamp(0, 1).square()
