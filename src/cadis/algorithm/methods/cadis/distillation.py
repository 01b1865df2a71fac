"""Distillation losses: Section IV of the paper (Eq. 18 and 19), and the loss of FedNTD."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

Bandwidth: TypeAlias = float | Literal["mean"]

_MAX_DISTANCE = 1e15  # larger distances are clamped, so that their squares are finite
_MASKED_EXPONENT = -1e37  # gives the probability 0; finite, so that no gradient is NaN


def log_conditional_probability(squares: Tensor, h2: Tensor, pairs: Tensor | None = None) -> Tensor:
    """Return log p_{j|i}, the probability that sample j is a neighbor of sample i (Eq. 18).

    ``p_{j|i} = K_h(x_j, x_i) / sum_{m != i} K_h(x_m, x_i)`` with the Gaussian kernel
    ``K_h(x, y) = exp(-||x - y||^2 / (2 h^2))``, computed as a log-softmax.

    Args:
        squares: squared distances between the representations of a batch, (..., b, b).
        h2: squared bandwidth h^2 of the kernel, (..., 1, 1).
        pairs: mask of the pairs of samples without padding, (..., b, b); by default all.

    Returns:
        Log-probabilities over j, (..., b, b); very negative for j = i and for masked j.
    """
    exponents = squares / (-2 * h2)
    exponents.diagonal(dim1=-2, dim2=-1).fill_(_MASKED_EXPONENT)
    if pairs is not None:
        exponents.masked_fill_(~pairs, _MASKED_EXPONENT)
    return torch.log_softmax(exponents, dim=-1)


def distillation_loss(
    student: Tensor, teacher: Tensor, bandwidth: Bandwidth = "mean", row_mask: Tensor | None = None
) -> Tensor:
    """Return L_KD, which compares distances between representations in two models (Eq. 19).

    ``L_KD = KL(Q || P) = sum_i sum_{j != i} q_{j|i} log(q_{j|i} / p_{j|i})``, where P is computed
    from the representations of the student, and Q from the representations of the teacher. The loss
    is exactly 0 if P equals Q, and for batches of one or two samples, in which a sample has at most
    one neighbor.

    The gradient is computed from a formula, which is twice as fast as autograd. The derivative with
    respect to the squared distance of i and j is (q_{j|i} - p_{j|i}) / (2 h^2). So the gradient
    with respect to x_i is sum_j (q_{j|i} - p_{j|i} + q_{i|j} - p_{i|j}) (x_i - x_j) / h^2.

    Departure from the paper: the default of the bandwidth h, which the paper does not give. Here
    h^2 is the mean squared distance between the representations of a batch, computed for each
    model. So it adapts to the scale of the representations. The gradient treats it as a constant.

    Args:
        student: representations R_S(x) in the local model, (..., b, d).
        teacher: representations R_T(x) in the received model, (..., b, d').
        bandwidth: h of the Gaussian kernel, or "mean".
        row_mask: True for rows that are samples, False for padding, (..., b); by default all True.

    Returns:
        The sum over i and j, (...). Only the first derivative with respect to ``student`` exists.
    """
    with torch.no_grad():
        (log_p, log_q), (_, q), gradient = _compute_terms(student, teacher, bandwidth, row_mask)
        value = (q * (log_q - log_p)).sum(dim=(-2, -1))
    # The second term is 0, and its derivative with respect to the student is the gradient.
    loss: Tensor = value + (gradient * (student - student.detach())).sum(dim=(-2, -1))
    return loss


def distillation_gradient(
    student: Tensor, teacher: Tensor, bandwidth: Bandwidth = "mean", row_mask: Tensor | None = None
) -> Tensor:
    """Return the gradient of :func:`distillation_loss` with respect to ``student``, (..., b, d)."""
    with torch.no_grad():
        return _compute_terms(student, teacher, bandwidth, row_mask)[2]


def not_true_loss(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """Return the not-true distillation loss of FedNTD (Lee et al., 2022) with temperature 1.

    The true class is excluded from both distributions. So the student can learn the true class, and
    keeps the teacher's predictions for all other classes.

    Args:
        student: logits of the local model, (..., b, classes).
        teacher: logits of the received model, (..., b, classes).
        labels: true classes, (..., b).

    Returns:
        The sum over the samples of KL(teacher || student), (...).
    """
    is_true = torch.arange(student.shape[-1], device=labels.device) == labels[..., None]
    return masked_kl_divergence(is_true, student, teacher)


def masked_kl_divergence(mask: Tensor, student: Tensor, teacher: Tensor) -> Tensor:
    """Return the KL divergence of two softmax distributions over the classes that are not masked.

    Args:
        mask: True for classes that are excluded from both distributions, (..., b, classes).
        student: logits of the local model, (..., b, classes).
        teacher: logits of the received model, (..., b, classes).

    Returns:
        The sum over the samples of KL(teacher || student), (...); 0 if all classes are masked.
    """
    precise = torch.promote_types(student.dtype, torch.float32)  # at least single precision
    log_q, log_p = (
        torch.log_softmax(logits.to(precise).masked_fill(mask, _MASKED_EXPONENT), dim=-1)
        for logits in (teacher, student)
    )
    return (log_q.exp() * (log_q - log_p)).masked_fill(mask, 0).sum(dim=(-2, -1))


def _compute_terms(
    student: Tensor, teacher: Tensor, bandwidth: Bandwidth, row_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (log p, log q) and (p, q), each (2, ..., b, b), and the gradient, (..., b, d)."""
    precise = torch.promote_types(student.dtype, torch.float32)  # at least single precision
    features = student.to(precise)
    squares = _compute_squared_distances(features, teacher.to(precise))  # (2, ..., b, b)
    pairs = None if row_mask is None else row_mask[..., :, None] & row_mask[..., None, :]
    h2 = _compute_squared_bandwidths(squares, bandwidth, pairs)  # (2, ..., 1, 1)
    log_probabilities = log_conditional_probability(squares, h2, pairs)
    probabilities = log_probabilities.exp()
    if pairs is not None:
        probabilities = probabilities * pairs
    difference = probabilities[1] - probabilities[0]
    difference = (difference + difference.mT) / h2[0]  # (..., b, b)
    # Offsets from the first sample give the same gradient with smaller rounding errors.
    offsets = (features - features[..., :1, :]).clamp(-_MAX_DISTANCE, _MAX_DISTANCE)
    gradient = difference.sum(dim=-1, keepdim=True) * offsets - difference @ offsets
    return log_probabilities, probabilities, gradient.to(student.dtype)


def _compute_squared_distances(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the squared distances of all pairs, student before teacher, (2, ..., b, b)."""
    if student.shape != teacher.shape:
        width = max(student.shape[-1], teacher.shape[-1])
        student, teacher = (F.pad(x, (0, width - x.shape[-1])) for x in (student, teacher))
    both = torch.stack([student, teacher])
    exact = "donot_use_mm_for_euclid_dist"  # then the distance of equal rows is exactly 0
    return torch.cdist(both, both, compute_mode=exact).clamp_max(_MAX_DISTANCE).square()


def _compute_squared_bandwidths(
    squares: Tensor, bandwidth: Bandwidth, pairs: Tensor | None
) -> Tensor:
    """Return h^2 of both models, (2, ..., 1, 1)."""
    if bandwidth != "mean":
        return torch.full_like(squares[..., :1, :1], bandwidth**2)
    if pairs is None:
        size = squares.shape[-1]
        num_pairs: Tensor | int = max(size * (size - 1), 1)
    else:
        squares = squares * pairs
        sizes = pairs.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        num_pairs = (sizes * (sizes - 1)).clamp_min(1)[..., None, None]
    h2 = squares.sum(dim=(-2, -1), keepdim=True) / num_pairs
    return h2.clamp_min(torch.finfo(h2.dtype).tiny)
