"""Knowledge-distilled regularisation: Section IV of the paper."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor

Bandwidth: TypeAlias = float | Literal["mean"]

_FARTHEST = 1e14
"""Features are held within so many bandwidths: their squares never overflow to NaN."""


def log_conditional(features: Tensor, bandwidth: Bandwidth = "mean") -> Tensor:
    """Log p_{j|i}: how likely each sample i is to have j as its neighbour, by a Gaussian kernel.

    Args:
        features: representations of a batch, (b, d).
        bandwidth: the kernel's h, or "mean" for h^2 = the mean squared distance of the batch's
            own pairs, held constant. The paper does not give h; the mean adapts itself to the
            scale of the features, so that nothing need be tuned.

    Returns:
        Log-probabilities over j != i, (b, b - 1).
    """
    centred = features - features.detach().mean(dim=0)
    scaled = _in_bandwidths(centred, bandwidth)
    gram = scaled @ scaled.T  # (b, b)
    norms = gram.diagonal()
    distances = _off_diagonal(norms[:, None] + norms[None, :] - 2 * gram).clamp_min(0)
    if bandwidth == "mean":
        mean = distances.detach().sum() / max(distances.numel(), 1)
        distances = distances / mean.clamp_min(torch.finfo(mean.dtype).tiny)
    return torch.log_softmax(distances / -2, dim=1)


def divergence(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(Q || P), summed over i and j, of log-probabilities (b, b - 1)."""
    return (teacher.exp() * (teacher - student)).sum()


def distillation_loss(student: Tensor, teacher: Tensor, bandwidth: Bandwidth = "mean") -> Tensor:
    """L_KD: divergence of the local from the global model's pairwise similarities (Section IV).

    Exactly 0 if both are the same, and for batches of one or two samples, which have no
    geometry to distil.

    Args:
        student: representations by the local model, (b, d).
        teacher: representations of the same samples by the received global model, (b, d').
        bandwidth: see :func:`log_conditional`.

    Returns:
        The sum over the batch, a scalar, differentiable in ``student``.
    """
    target = log_conditional(teacher.detach(), bandwidth)
    return divergence(target, log_conditional(student, bandwidth))


def _in_bandwidths(centred: Tensor, bandwidth: Bandwidth) -> Tensor:
    """Features in units of h; if h is yet to be measured, in units of the largest of them."""
    if bandwidth == "mean":
        largest = centred.detach().abs().amax()
        return centred / largest.clamp_min(torch.finfo(centred.dtype).tiny)
    return (centred / bandwidth).clamp(-_FARTHEST, _FARTHEST)


def _off_diagonal(matrix: Tensor) -> Tensor:
    """A square matrix without its diagonal, (b, b) -> (b, b - 1)."""
    size = len(matrix)
    return matrix.flatten()[1:].view(size - 1, size + 1)[:, :-1].reshape(size, size - 1)
