"""Limits on the sizes of updates: what no honest training can give is rejected.

The limits are wide. They are no defense against a client that sends harmful values of a usual size.
Sizes that overflow in single precision are computed in float64.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from cadis._io import estimate_squared_distance
from cadis.algorithm import ServerState
from cadis.algorithm.vectors import MIN_MODEL_NORM
from cadis.server.records import Rejection
from cadis.types import ClientId, ClientUpdate, ModelState

TOO_LONG = "its update is more than 1,000 times as long as the model or the other updates"
"""Reason for the rejection of an update whose norm is absurd."""

_SUSPICIOUS = 10.0
"""An update is suspicious if it is longer than the model and this many times the other updates."""

_MIN_COUNTER = 1e6
"""Integer buffers count steps; a change by this number in a round is always accepted."""


@dataclass(frozen=True)
class SizeLimit:
    """Limit on a size: ``min(largest, max(smallest, multiple * median of the other sizes))``.

    Attributes:
        multiple: how many times the median of the other participants is allowed.
        smallest: a size up to this is always accepted.
        largest: a larger size is never accepted, even if most participants send such sizes.
        alone: limit of a participant without others.
    """

    multiple: float
    smallest: float
    largest: float
    alone: float

    def compute(self, median: float | None) -> float:
        """Return the limit, given the median of the other participants; None without others."""
        if median is None:
            return self.alone
        return min(self.largest, max(self.smallest, self.multiple * median))


_LIMITS = {
    "model": SizeLimit(1e3, smallest=1, largest=1e3, alone=1e3),
    "tensor": SizeLimit(1e3, smallest=10, largest=1e6, alone=1e3),
    "buffer": SizeLimit(20, smallest=20, largest=1e6, alone=1e6),
    "variance": SizeLimit(20**2, smallest=20**2, largest=1e6, alone=1e6),
    "negative": SizeLimit(0, smallest=0, largest=0, alone=0),
    "counter": SizeLimit(1e3, smallest=1e3, largest=1e6, alone=1e3),
}
"""Limits on sizes, which are relative to values that the server knows; see ``_measure_update``.

In honest training of a ResNet-9 with learning rates up to the one at which it diverges, running
means of batch norm reached 7, and running standard deviations 17 of the allowed 20.
"""


@dataclass(frozen=True)
class SizeCheck:
    """Result of :func:`check_sizes`.

    Attributes:
        accepted: updates within all limits, in their order.
        rejected: rejections of the other updates.
        lengths: length of each accepted update, relative to the model.
        suspects: clients whose accepted updates are so long that they may damage the model.
    """

    accepted: list[ClientUpdate]
    rejected: list[Rejection]
    lengths: list[float]
    suspects: list[ClientId]


def check_sizes(
    updates: Sequence[ClientUpdate], state: ServerState, buffers: Mapping[str, slice]
) -> SizeCheck:
    """Reject updates whose sizes are absurd.

    Args:
        updates: valid updates of a round.
        state: server state before the round.
        buffers: slice of each floating-point buffer in ``ModelState.buffers``, by name.
    """
    norms = {name: _compute_norm(model.parameters) for name, model in state.models.items()}
    sizes = [_measure_update(update, state, norms, buffers) for update in updates]
    limits, longest = _compute_limits(sizes), _compute_suspicious_lengths(sizes)
    result = SizeCheck([], [], [], [])
    for update, own, own_limits, suspicious in zip(updates, sizes, limits, longest, strict=True):
        if (reason := _find_excess(own, own_limits)) is not None:
            result.rejected.append(Rejection(update.client_id, reason))
            continue
        result.accepted.append(update)
        result.lengths.append(own["model", ""])
        if any(own.get(key, 0.0) > length for key, length in suspicious.items()):
            result.suspects.append(update.client_id)
    return result


_Key = tuple[str, str]  # a key of _LIMITS, and the name of a tensor or a buffer


def _measure_update(
    update: ClientUpdate,
    state: ServerState,
    norms: Mapping[str, float],
    buffers: Mapping[str, slice],
) -> dict[_Key, float]:
    """Return the sizes of an update, each relative to a value that the server knows.

    The length of an update is relative to the norm of the global model, as are the lengths of
    further tensors. The change of a buffer is relative to its largest value on the server, and to
    at least 1. If a client sends several models, its largest sizes count.
    """
    sizes: dict[_Key, float] = {}
    for name, model in update.message.models.items():
        vectors, start = model.vectors(), state.models[name]
        length = sqrt(estimate_squared_distance(vectors["parameters"], start.parameters))
        parts = {("model", ""): length / norms[name]}
        parts |= _measure_buffers(vectors["buffers"], start, buffers)
        parts["counter", ""] = _largest_change(vectors["counters"], start.counters) / _MIN_COUNTER
        sizes |= {key: max(size, sizes.get(key, 0.0)) for key, size in parts.items()}
    scale = max(norms.values())
    for name, tensor in update.message.tensors.items():
        if tensor.is_floating_point() or tensor.is_complex():
            sizes["tensor", name] = _compute_norm(tensor, smallest=0) / scale
    return sizes


def _measure_buffers(
    values: Tensor, start: ModelState, buffers: Mapping[str, slice]
) -> dict[_Key, float]:
    sizes: dict[_Key, float] = {}
    for name, part in (buffers or {"buffers": slice(None)}).items():
        scale = max(1.0, _largest_change(start.buffers[part], torch.zeros(())))
        kind = "variance" if name.endswith("running_var") else "buffer"
        sizes[kind, name] = _largest_change(values[part], start.buffers[part]) / scale
        if kind == "variance" and values[part].numel():
            sizes["negative", name] = max(0.0, -float(values[part].min()))
    return sizes


def _compute_limits(sizes: Sequence[Mapping[_Key, float]]) -> list[dict[_Key, float]]:
    """Return the limit of each size of each update, from the sizes of the other updates."""
    limits: list[dict[_Key, float]] = [{} for _ in sizes]
    for key in sorted({key for own in sizes for key in own}):
        for own, median in zip(limits, _compute_other_medians(sizes, key), strict=True):
            own[key] = _LIMITS[key[0]].compute(median)
    return limits


def _compute_suspicious_lengths(
    sizes: Sequence[Mapping[_Key, float]],
) -> list[dict[_Key, float]]:
    """Return lengths above which an update is suspicious; none if there are no other updates."""
    lengths: list[dict[_Key, float]] = [{} for _ in sizes]
    for key in sorted({key for own in sizes for key in own if key[0] in ("model", "tensor")}):
        for own, median in zip(lengths, _compute_other_medians(sizes, key), strict=True):
            if median is not None:
                own[key] = max(1.0, _SUSPICIOUS * median)
    return lengths


def _compute_other_medians(sizes: Sequence[Mapping[_Key, float]], key: _Key) -> list[float | None]:
    """Return for each update the lower median of a size over the other updates.

    The lower one of two numbers in the middle is used, so that one of two others has no influence.
    """
    values = [own.get(key, 0.0) for own in sizes]
    if len(values) < 2:
        return [None] * len(values)
    ascending = sorted(values)
    middle = (len(values) - 2) // 2  # index of the lower median of k - 1 numbers
    return [
        ascending[middle + 1] if value <= ascending[middle] else ascending[middle]
        for value in values
    ]


def _find_excess(sizes: Mapping[_Key, float], limits: Mapping[_Key, float]) -> str | None:
    """Return a reason that names the first size that is not within its limit; None if all are."""
    for (kind, name), size in sizes.items():
        if size <= limits[kind, name]:
            continue
        far = f"its {name} is far from those of the global model and of the other clients"
        return {
            "model": TOO_LONG,
            "tensor": f"its {name} is more than 1,000 times as long as the model or that of others",
            "buffer": far,
            "variance": far,
            "negative": f"its {name} is negative",
            "counter": "its integer buffers have grown by more than a billion",
        }[kind]
    return None


def _largest_change(one: Tensor, other: Tensor) -> float:
    """Return the largest absolute difference of two tensors, without overflow of integers."""
    return float((one.double() - other.double()).abs().max()) if one.numel() else 0.0


def _compute_norm(vector: Tensor, smallest: float = MIN_MODEL_NORM) -> float:
    """Return the norm of a vector, but at least ``smallest``."""
    real = torch.view_as_real(vector) if vector.is_complex() else vector
    square = estimate_squared_distance(real, real.new_zeros(()).expand_as(real))
    return max(smallest, sqrt(square))
