"""Knowledge-distilled regularisation: Section IV of the paper."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

Bandwidth: TypeAlias = float | Literal["mean"]

_FARTHEST = 1e15  # the largest distance, which keeps every number finite
_NEVER = -1e37  # the exponent that means "never", likewise


def log_conditional(squares: Tensor, h2: Tensor, pairs: Tensor | None = None) -> Tensor:
    """Log p_{j|i}: how likely sample i is to have j as its neighbour, by a Gaussian kernel.

    Args:
        squares: squared distances of a batch's samples, (..., b, b).
        h2: the squared bandwidth of the kernel, h^2, (..., 1, 1).
        pairs: where both are samples, (..., b, b); everywhere unless told.

    Returns:
        Log-probabilities over j; that of "never" for j = i, and j that is no sample, (..., b, b).
    """
    exponents = squares / (-2 * h2)
    exponents.diagonal(dim1=-2, dim2=-1).fill_(_NEVER)
    if pairs is not None:
        exponents.masked_fill_(~pairs, _NEVER)
    return torch.log_softmax(exponents, dim=-1)


def distillation_loss(
    student: Tensor, teacher: Tensor, bandwidth: Bandwidth = "mean", present: Tensor | None = None
) -> Tensor:
    """L_KD: divergence of the local from the global model's pairwise similarities (Section IV).

    Exactly 0 if both are the same, and for batches of one or two samples, which have no
    geometry to distil.

    The gradient is written out, which is twice as fast as recording every step of it: the
    derivative by the squared distance of i and j is (q_{j|i} - p_{j|i}) / (2 h^2), so by x_i it
    is sum_j (q_{j|i} - p_{j|i} + q_{i|j} - p_{i|j})(x_i - x_j) / h^2.

    Args:
        student: representations by the local model, (..., b, d).
        teacher: representations of the same samples by the received global model, (..., b, d').
        bandwidth: the kernel's h, or "mean" for h^2 = the mean squared distance of each model's
            own pairs in the batch, held constant. The paper does not give h; the mean adapts
            itself to the scale of the features, so that nothing need be tuned.
        present: which rows are samples, where others only fill up, (..., b); all unless told.

    Returns:
        KL(Q || P), summed over i and j, (...), differentiable (once) in ``student``.
    """
    with torch.no_grad():
        (log_p, log_q), (_, q), gradient = _worked_out(student, teacher, bandwidth, present)
        value = (q * (log_q - log_p)).sum(dim=(-2, -1))
    # A number of this value, whose derivative by the student is this gradient.
    loss: Tensor = value + (gradient * (student - student.detach())).sum(dim=(-2, -1))
    return loss


def distillation_gradient(
    student: Tensor, teacher: Tensor, bandwidth: Bandwidth = "mean", present: Tensor | None = None
) -> Tensor:
    """The gradient of :func:`distillation_loss` by ``student`` alone, (..., b, d)."""
    with torch.no_grad():
        return _worked_out(student, teacher, bandwidth, present)[2]


def not_true_loss(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """Divergence of the local from the global model's beliefs about the classes that are not true.

    FedNTD (Lee et al., 2022), with a temperature of 1: the true class is left out of both
    distributions, so that nothing holds the model back from learning it, and what it knew of all
    others is kept. Logits and the result are as in :func:`divergence_without`; labels, (..., b).
    """
    true = torch.arange(student.shape[-1], device=labels.device) == labels[..., None]
    return divergence_without(true, student, teacher)


def divergence_without(left_out: Tensor, student: Tensor, teacher: Tensor) -> Tensor:
    """Divergence of the local from the global model's beliefs, some classes being left out.

    Args:
        left_out: classes that are no part of either distribution, (..., b, classes).
        student: logits of the local model, likewise.
        teacher: logits of the received global model on the same samples, likewise.

    Returns:
        The sum over the samples of KL(teacher || student), (...); 0 where all are left out.
    """
    precise = torch.promote_types(student.dtype, torch.float32)  # of half precision too
    log_q, log_p = (
        torch.log_softmax(logits.to(precise).masked_fill(left_out, _NEVER), dim=-1)
        for logits in (teacher, student)
    )
    return (log_q.exp() * (log_q - log_p)).masked_fill(left_out, 0).sum(dim=(-2, -1))


def _worked_out(
    student: Tensor, teacher: Tensor, bandwidth: Bandwidth, present: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Log p and log q, (2, ..., b, b), p and q likewise, and the gradient, (..., b, d)."""
    precise = torch.promote_types(student.dtype, torch.float32)  # of half precision too
    start = student.to(precise)
    squares = _squared_distances(start, teacher.to(precise))  # (2, ..., b, b)
    pairs = None if present is None else present[..., :, None] & present[..., None, :]
    h2 = _squared_bandwidths(squares, bandwidth, pairs)  # (2, ..., 1, 1)
    logs = log_conditional(squares, h2, pairs)
    likely = logs.exp() if pairs is None else logs.exp() * pairs
    pull = likely[1] - likely[0]
    pull = (pull + pull.mT) / h2[0]  # (..., b, b)
    moved = (start - start[..., :1, :]).clamp(-_FARTHEST, _FARTHEST)
    gradient = pull.sum(dim=-1, keepdim=True) * moved - pull @ moved
    return logs, likely, gradient.to(student.dtype)


def _squared_distances(student: Tensor, teacher: Tensor) -> Tensor:
    """Squared distances of all pairs, the student's and the teacher's, held finite."""
    if student.shape != teacher.shape:
        width = max(student.shape[-1], teacher.shape[-1])
        student, teacher = (F.pad(x, (0, width - x.shape[-1])) for x in (student, teacher))
    both = torch.stack([student, teacher])
    exact = "donot_use_mm_for_euclid_dist"  # alike rows are at distance 0, not almost
    return torch.cdist(both, both, compute_mode=exact).clamp_max(_FARTHEST).square()


def _squared_bandwidths(squares: Tensor, bandwidth: Bandwidth, pairs: Tensor | None) -> Tensor:
    """h^2 of both models, (2, ..., 1, 1)."""
    if bandwidth != "mean":
        return torch.full_like(squares[..., :1, :1], bandwidth**2)
    if pairs is None:
        size = squares.shape[-1]
        number: Tensor | int = max(size * (size - 1), 1)
    else:
        squares = squares * pairs
        size_of = pairs.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        number = (size_of * (size_of - 1)).clamp_min(1)[..., None, None]
    h2 = squares.sum(dim=(-2, -1), keepdim=True) / number
    return h2.clamp_min(torch.finfo(h2.dtype).tiny)
