"""Operations on large tensors, done chunk by chunk so that intermediate results stay in cache."""

from collections.abc import Callable, Sequence
from functools import reduce
from math import isfinite

import numpy as np
import torch
from torch import Tensor

_CHUNK = 2**18
"""Elements per chunk: small enough to stay in cache, large enough to amortize the call."""

_SMALL_CHUNK = 2**15
"""Elements per chunk for functions with several intermediate results in double precision."""

_HUGE_PAGES = 2**22
"""Size in bytes above which numpy asks the system for huge pages."""

_CACHE_LINE = 64
"""Alignment of large vectors, in bytes."""


def allocate_vector(size: int, dtype: torch.dtype) -> Tensor:
    """Return an uninitialized vector on the CPU.

    A large vector uses huge pages if the system has them. The system provides memory page by page
    on first access, and with small pages this takes longer than averaging ten models.
    """
    nbytes = size * dtype.itemsize
    if nbytes < _HUGE_PAGES:
        return torch.empty(size, dtype=dtype)
    memory = torch.from_numpy(np.empty(nbytes + _CACHE_LINE, np.uint8))
    start = -memory.data_ptr() % _CACHE_LINE
    return memory[start : start + nbytes].view(dtype)


def all_finite(tensor: Tensor) -> bool:
    """Return whether no element is NaN or infinite.

    If the sum is finite, then so are all elements, and summing is as fast as reading memory. The
    sum of huge finite elements may overflow; only then each element is tested.
    """
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    dtype = torch.promote_types(tensor.dtype, torch.float32)
    if tensor.sum(dtype=dtype).isfinite():
        return True
    return all(bool(part.isfinite().all()) for part in tensor.reshape(-1).split(_CHUNK))


def map_chunks(function: Callable[..., tuple[Tensor, ...]], *vectors: Tensor) -> tuple[Tensor, ...]:
    """Apply an elementwise function to vectors of equal length, and return its results.

    The function is called once per chunk. Its intermediate results, often in double precision,
    stay in cache and are never of full size.
    """
    size = len(vectors[0])
    results: tuple[Tensor, ...] = ()
    for start in range(0, max(size, 1), _SMALL_CHUNK):
        chunk = slice(start, start + _SMALL_CHUNK)
        parts = function(*(vector[chunk] for vector in vectors))
        results = results or tuple(allocate_vector(size, part.dtype) for part in parts)
        for result, part in zip(results, parts, strict=True):
            result[chunk] = part
    return results


def compute_squared_distance(one: Tensor, other: Tensor) -> float:
    """Return the sum of squared differences of two tensors, computed in double precision."""
    chunks = zip(
        one.flatten().split(_SMALL_CHUNK), other.flatten().split(_SMALL_CHUNK), strict=True
    )
    return sum(float((a.double() - b.double()).square_().sum()) for a, b in chunks)


def estimate_squared_distance(one: Tensor, other: Tensor) -> float:
    """Return the sum of squared differences, accurate to about six digits.

    It is three times as fast as :func:`compute_squared_distance`. Where single precision overflows,
    it is computed in double precision.
    """
    if one.dtype != torch.float32 or other.dtype != torch.float32:
        return compute_squared_distance(one, other)
    total, buffer = 0.0, torch.empty(min(_CHUNK, one.numel()))
    chunks = zip(one.flatten().split(_CHUNK), other.flatten().split(_CHUNK), strict=True)
    for a, b in chunks:
        difference = torch.sub(a, b, out=buffer[: len(a)])
        square = float(torch.dot(difference, difference))
        total += square if isfinite(square) else compute_squared_distance(a, b)
    return total


@torch.no_grad()
def write_mean(out: Tensor, tensors: Sequence[Tensor], weights: Sequence[float]) -> None:
    """Write the weighted mean of tensors to ``out``; for integers, the maximum.

    The first chunk of all tensors is averaged before the second chunk, and so on, so that each
    tensor is read once and no intermediate result has full size. If ``out`` is not contiguous, one
    more copy is made.
    """
    write = _write_chunk_mean if out.is_floating_point() else _write_chunk_maximum
    flat = out.view(-1) if out.is_contiguous() else allocate_vector(out.numel(), out.dtype)
    vectors = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, len(flat), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        write(flat[chunk], [vector[chunk] for vector in vectors], weights)
    if not out.is_contiguous():
        out.copy_(flat.view(out.shape))


def _write_chunk_mean(out: Tensor, parts: Sequence[Tensor], weights: Sequence[float]) -> None:
    """Write the running mean, computed at least in single precision.

    The update is mean <- mean + w_i / (w_1 + ... + w_i) * (x_i - mean). So the mean of equal
    numbers is exactly that number, and weights whose sum is not quite 1 do not scale the result.
    """
    dtype = torch.promote_types(out.dtype, torch.float32)
    buffer = out if out.dtype == dtype else torch.empty_like(out, dtype=dtype)
    positive = [(part, weight) for part, weight in zip(parts, weights, strict=True) if weight > 0]
    (first, total), *others = positive
    mean = first.to(dtype)
    for part, weight in others:
        total += weight
        mean = torch.lerp(mean, part.to(dtype), weight / total, out=buffer)
    if not all_finite(mean):
        # The difference of two huge numbers may overflow even if their mean does not.
        mean = torch.zeros_like(out, dtype=torch.float64)
        for part, weight in positive:
            mean.add_(part.double(), alpha=weight / total)
    out.copy_(mean)


def _write_chunk_maximum(out: Tensor, parts: Sequence[Tensor], _weights: Sequence[float]) -> None:
    out.copy_(reduce(torch.maximum, parts))


def scatter_rows(rows: Tensor, mask: Tensor) -> Tensor:
    """Return a tensor with ``rows``, in order, where ``mask`` is True, and 0 elsewhere.

    It uses numpy, which is eight times as fast as ``result[mask] = rows`` in torch.
    """
    result = rows.new_zeros(len(mask), *rows.shape[1:])
    result.numpy()[mask.numpy()] = rows.numpy()
    return result
