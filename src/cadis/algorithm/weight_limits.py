"""Limits on the weight that a client can get by what it reports."""

from bisect import bisect_left
from collections.abc import Sequence

import torch
from torch import Tensor

_SMALL_ROUND = 3
"""A round of fewer clients has the limit of a round of three: twice an equal share is 2/3."""

_ROUNDING = 1e-9
"""Relative difference between a weight and its limit that counts as rounding."""


def compute_share_limit(num_clients: int, largest_share: float) -> float:
    """Return the largest weight of one of k clients.

    Args:
        num_clients: k; fewer than three count as three, because twice an equal share of one or two
            clients would be everything.
        largest_share: the limit as a multiple of an equal share, 1 / k.

    Example:
        >>> from cadis.algorithm.weight_limits import compute_share_limit
        >>> compute_share_limit(10, 2), compute_share_limit(2, 1.5)
        (0.2, 0.5)
    """
    return min(1.0, largest_share / max(num_clients, _SMALL_ROUND))


def limit_counts(counts: Sequence[int], largest_share: float | None) -> list[int]:
    """Reduce numbers of samples so that no client has too large a share of the round.

    All counts above a maximum are reduced to it. The maximum is the largest number c for which c /
    (sum of the reduced counts) is at most the limit of :func:`compute_share_limit`. So it follows
    from the smaller counts, and a larger claim does not raise it.

    Args:
        counts: number of samples that each client reported, positive.
        largest_share: largest share of a client, as a multiple of an equal share, at least 1; None
            for no limit.

    Example:
        The limit is 2/5, and 26 of 26 + 9 + 10 + 10 + 10 samples are exactly this share:

        >>> from cadis.algorithm.weight_limits import limit_counts
        >>> limit_counts([9, 10, 10, 10, 10**9], 2)
        [9, 10, 10, 10, 26]
    """
    if largest_share is None or len(counts) < 2:
        return list(counts)
    share, smallest = compute_share_limit(len(counts), largest_share), min(counts)

    def is_too_large(maximum: int) -> bool:
        total = sum(min(count, maximum) for count in counts)
        return maximum > share * total * (1 + _ROUNDING)

    candidates = range(smallest + 1, max(counts) + 1)
    maximum = smallest + bisect_left(candidates, True, key=is_too_large)
    return [min(count, maximum) for count in counts]


def limit_weights(weights: Tensor, sample_weights: Tensor, largest_share: float) -> Tensor:
    """Reduce weights that are too large, and scale the other weights up.

    The limit of a client is that of :func:`compute_share_limit`, or its share of the samples if
    that is larger. Weights within their limits are returned unchanged.

    Args:
        weights: weights with sum 1, (k,).
        sample_weights: share of each client of the samples of the round, n_i / N, (k,).
        largest_share: largest weight of a client, as a multiple of an equal share.

    Returns:
        Weights with sum 1, (k,).

    Example:
        >>> import torch
        >>> from cadis.algorithm.weight_limits import limit_weights
        >>> weights = torch.tensor([0.76, 0.06, 0.06, 0.06, 0.06])
        >>> limit_weights(weights, torch.full((5,), 0.2), largest_share=2)
        tensor([0.4000, 0.1500, 0.1500, 0.1500, 0.1500])
    """
    if weights.shape != sample_weights.shape or not weights.isfinite().all():
        return weights  # invalid; average_models raises an error
    share = compute_share_limit(len(weights), largest_share)
    limits = sample_weights.to(weights.dtype).clamp(min=share)
    is_limited, limited = weights > limits * (1 + _ROUNDING), weights
    while (limited > limits * (1 + _ROUNDING)).any():
        is_limited = is_limited | (limited > limits)
        others = weights if weights[~is_limited].sum() > 0 else sample_weights.to(weights.dtype)
        free = (1 - limits[is_limited].sum()).clamp(min=0)
        scale = free / others[~is_limited].sum() if not is_limited.all() else 0
        limited = torch.where(is_limited, limits, others * scale)
    return limited
