"""What the paper proves: its theorems and propositions as functions that can be executed.

No run needs them. They are oracles for tests, and where docs/paper.md sends a reader who looks for
a theorem; where one does not hold as printed, its function says so.
"""

from math import comb

import torch
from torch import Tensor

from cadis.errors import CadisError


def expected_rounds_bound(n: int, k: int) -> float:
    """Bound of the theorem on the expected rounds until all pairs are estimated (Section III-C).

    1 + sum_{i=k}^{n-1} C(n, k) / (C(n, k) - C(i, k)), with exact binomials.

    Departure: what the proof bounds is the expected number of rounds until every client has
    taken part at least once. That is necessary, but not enough, for an estimate of every pair:
    of four clients who met as {1, 2} and then {3, 4}, 1 and 3 have no common helper. For k = 1
    no pair is ever observed, yet the formula gives the (finite) coupon collector's number.
    """
    if not 1 <= k <= n:
        raise CadisError(f"k participants of n clients needs 1 <= k <= n, not k = {k}, n = {n}.")
    ways = comb(n, k)
    return 1 + sum(ways / (ways - comb(i, k)) for i in range(k, n))


def cosine_bounds(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Between what bounds s_ac lies, given the cosines s_ab and s_bc (triangle inequality)."""
    middle = first * second
    margin = ((1 - first**2) * (1 - second**2)).clamp_min(0).sqrt()
    return middle - margin, middle + margin


def present_classes(head_update: Tensor) -> Tensor:
    """Observation 1: which classes a client trained on, from its update of the classifier layer.

    A class was present if and only if its row has an entry that grew. It holds for features
    that are never negative (after ReLU, say) and plain SGD.

    Args:
        head_update: weight after minus weight before, one row a class; the bias may be a
            further column, (classes, features).

    Returns:
        Whether each class was present, (classes,), bool.
    """
    return (head_update > 0).any(dim=1)


def fedavg_limit(
    curvature: Tensor, slope: Tensor, cluster_sizes: Tensor, learning_rate: float, steps: int
) -> Tensor:
    """Z_FedAvg: where FedAvg converges on quadratic losses f_c(z) = a_c z^2 + b_c z.

    The setting of the convergence proof (Section III-D), for any number of clusters of alike
    clients: all take part with equal data and do ``steps`` steps of gradient descent a round.

    Departure: the paper's limits lack the minus sign that its own formulas for round t have.

    Args:
        curvature: a_c > 0, one a cluster, (m,).
        slope: b_c, (m,).
        cluster_sizes: clients in each cluster, (m,); (2, 1) in the paper.
        learning_rate: eta, below 1 / (2 a_c) for all c.
        steps: E, local steps a round.
    """
    return _fixed_point(curvature, slope, cluster_sizes, learning_rate, steps)


def cadis_limit(curvature: Tensor, slope: Tensor, learning_rate: float, steps: int) -> Tensor:
    """Z_CADIS: as :func:`fedavg_limit`, with every cluster weighing the same."""
    return _fixed_point(curvature, slope, torch.ones_like(curvature), learning_rate, steps)


def balanced_loss(curvature: Tensor, slope: Tensor, z: Tensor) -> Tensor:
    """f*: the loss on the target distribution, in which every cluster has the same share.

    The proposition says that f*(Z_FedAvg) >= f*(Z_CADIS).

    Departure: that is not always so. For two clusters, the big one first, it holds if and only
    if P + Q >= 2 a_1 / (a_1 + a_2), with P and Q the weights of cluster 1 in the two limits.
    This is always true for one local step, and for a_1 <= a_2. But with many local steps and a
    big cluster of much the larger curvature, the steps themselves bias both limits towards the
    small cluster, and the big cluster's extra weight repairs it: a = (1, 0.01), b = (1, -1),
    eta = 0.4, 50 steps is a counterexample. The difference that the paper prints holds for
    b_1 = -b_3 only.
    """
    return (curvature * z**2 + slope * z).mean()


def _fixed_point(
    curvature: Tensor, slope: Tensor, shares: Tensor, learning_rate: float, steps: int
) -> Tensor:
    """The mean of the clusters' minima, weighted by share and by how far local training gets."""
    minima = -slope / (2 * curvature)
    progress = 1 - (1 - 2 * curvature * learning_rate) ** steps  # 1 - phi_c
    weights = shares * progress
    return (weights * minima).sum() / weights.sum()
