"""Passes over large tensors that take little more time than reading them."""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import torch
from torch import Tensor

_CHUNK = 2**18
"""Numbers that are worked on at once: few enough to stay in the cache from one model to the next,
enough to make the calls themselves cheap."""

_PRECISE = 2**15
"""The same where several intermediate results in double precision must stay in the cache."""

_LARGE = 2**22
"""Bytes from which on numpy asks the system for huge pages."""

_LINE = 64
"""Bytes that large vectors begin at multiples of: a line of the cache."""


def fresh(size: int, dtype: torch.dtype) -> Tensor:
    """A vector to be written to, on the CPU.

    A large one lies in huge pages where the system has them. Memory comes page by page as it is
    first touched, and by pages of the usual size that takes longer than averaging ten models.
    """
    wanted = size * dtype.itemsize
    if wanted < _LARGE:
        return torch.empty(size, dtype=dtype)
    memory = torch.from_numpy(np.empty(wanted + _LINE, np.uint8))
    start = -memory.data_ptr() % _LINE
    return memory[start : start + wanted].view(dtype)


def all_finite(tensor: Tensor) -> bool:
    """Whether no number is NaN or infinite.

    A sum of which one term is not finite is not either, and it is found at the speed of memory.
    The sum of huge finite numbers may be infinite, too; only then each number is looked at.
    """
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    precise = torch.promote_types(tensor.dtype, torch.float32)
    if tensor.sum(dtype=precise).isfinite():
        return True
    return all(bool(part.isfinite().all()) for part in tensor.reshape(-1).split(_CHUNK))


def in_chunks(function: Callable[..., tuple[Tensor, ...]], *vectors: Tensor) -> tuple[Tensor, ...]:
    """What a function of numbers makes of vectors of one length, one or more new vectors.

    It works chunk by chunk, so that what it makes in between, often in double precision, stays in
    the cache and is never of full size.
    """
    size = len(vectors[0])
    made: tuple[Tensor, ...] = ()
    for start in range(0, max(size, 1), _PRECISE):
        chunk = slice(start, start + _PRECISE)
        parts = function(*(vector[chunk] for vector in vectors))
        made = made or tuple(fresh(size, part.dtype) for part in parts)
        for whole, part in zip(made, parts, strict=True):
            whole[chunk] = part
    return made


def squared_distance(one: Tensor, other: Tensor) -> float:
    """The sum of squared differences of two tensors, in double precision."""
    parts = zip(one.flatten().split(_PRECISE), other.flatten().split(_PRECISE), strict=True)
    return sum(float((a.double() - b.double()).square_().sum()) for a, b in parts)


@torch.no_grad()
def mean_into(place: Tensor, tensors: Sequence[Tensor], shares: Sequence[float]) -> None:
    """Write the weighted mean of tensors to ``place``, of any strides; of integers, the maximum.

    All tensors of a chunk are read before the next chunk, so that each is read once, and nothing
    of full size is written but the mean; a place that is not contiguous takes one more copy.
    """
    write = _write_mean if place.is_floating_point() else _write_maximum
    flat = place.view(-1) if place.is_contiguous() else fresh(place.numel(), place.dtype)
    vectors = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, len(flat), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        write(flat[chunk], [vector[chunk] for vector in vectors], shares)
    if not place.is_contiguous():
        place.copy_(flat.view(place.shape))


def _write_mean(place: Tensor, parts: Sequence[Tensor], shares: Sequence[float]) -> None:
    """The mean, at least in single precision: that of the first i goes on to the next by a step.

    It is mean <- mean + s_i / (s_1 + ... + s_i) * (w_i - mean), so that the mean of equal numbers
    is that number exactly, and shares that do not quite sum to 1 do not scale it.
    """
    precise = torch.promote_types(place.dtype, torch.float32)
    room = place if place.dtype == precise else torch.empty_like(place, dtype=precise)
    used = [(part, share) for part, share in zip(parts, shares, strict=True) if share > 0]
    (first, total), *others = used
    mean = first.to(precise)
    for part, share in others:
        total += share
        mean = torch.lerp(mean, part.to(precise), share / total, out=room)
    if not all_finite(mean):
        # The difference of huge numbers may be too large for their type where their mean is not.
        mean = torch.zeros_like(place, dtype=torch.float64)
        for part, share in used:
            mean.add_(part.double(), alpha=share / total)
    place.copy_(mean)


def _write_maximum(place: Tensor, parts: Sequence[Tensor], _shares: Sequence[float]) -> None:
    place.copy_(reduce(torch.maximum, parts))


def spread(values: Tensor, places: Tensor) -> Tensor:
    """The values in their order at the places that are true, 0 elsewhere.

    By numpy, which takes an eighth of the time of torch's ``spread[places] = values``.
    """
    found = values.new_zeros(len(places), *values.shape[1:])
    found.numpy()[places.numpy()] = values.numpy()
    return found
