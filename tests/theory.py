"""The theorems and propositions of the paper as executable functions.

Tests use them as oracles, and docs/explanation/paper.md refers to them. Where a statement does not
hold as printed, the docstring of its function says so under "Departure".
"""

from math import comb

import torch
from torch import Tensor

from cadis.errors import CadisError


def compute_expected_rounds_bound(n: int, k: int) -> float:
    """Return the bound on the expected rounds until all pairs are estimated (Section III-C).

    It is 1 + sum_{i=k}^{n-1} C(n, k) / (C(n, k) - C(i, k)), with exact binomials.

    Departure: the proof bounds the expected number of rounds until every client has participated
    at least once. This is necessary, but not sufficient, for an estimate of every pair: after the
    rounds {1, 2} and {3, 4}, no client has met both 1 and 3. For k = 1 no pair is ever observed,
    but the formula gives the (finite) expectation of the coupon collector's problem.

    Args:
        n: the number of clients.
        k: the number of participants per round.
    """
    if not 1 <= k <= n:
        raise CadisError(f"k participants of n clients needs 1 <= k <= n, not k = {k}, n = {n}.")
    ways = comb(n, k)
    return 1 + sum(ways / (ways - comb(i, k)) for i in range(k, n))


def compute_cosine_bounds(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return the bounds of the cosine s_ac, given s_ab and s_bc (triangle inequality)."""
    middle = first * second
    margin = ((1 - first**2) * (1 - second**2)).clamp_min(0).sqrt()
    return middle - margin, middle + margin


def find_trained_classes(head_update: Tensor) -> Tensor:
    """Return the classes that a client trained on, found from its update of the classifier layer.

    This is Observation 1: a client has samples of a class if and only if an entry of the row of
    that class grows. It holds for features that are not negative (e.g. after ReLU) and plain SGD.

    Args:
        head_update: weight after minus weight before training, one row per class; the bias may be
            a further column, (classes, features).

    Returns:
        True for the classes that the client trained on, (classes,), bool.
    """
    return (head_update > 0).any(dim=1)


def compute_fedavg_limit(
    curvature: Tensor, linear: Tensor, cluster_sizes: Tensor, learning_rate: float, steps: int
) -> Tensor:
    """Return Z_FedAvg, the limit of FedAvg for quadratic losses f_c(z) = a_c z^2 + b_c z.

    This is the setting of the convergence proof (Section III-D), for any number of clusters of
    identical clients: all clients participate, have equal amounts of data, and do ``steps`` steps
    of gradient descent per round.

    Departure: the paper's limits lack the minus sign that its own formulas for round t have.

    Args:
        curvature: a_c > 0, one per cluster, (m,).
        linear: b_c, the linear coefficients, (m,).
        cluster_sizes: the number of clients in each cluster, (m,); (2, 1) in the paper.
        learning_rate: eta, below 1 / (2 a_c) for all c.
        steps: E, the number of local steps per round.
    """
    return _fixed_point(curvature, linear, cluster_sizes, learning_rate, steps)


def compute_cadis_limit(
    curvature: Tensor, linear: Tensor, learning_rate: float, steps: int
) -> Tensor:
    """Return Z_CADIS, the limit of :func:`compute_fedavg_limit` with equal cluster weights."""
    return _fixed_point(curvature, linear, torch.ones_like(curvature), learning_rate, steps)


def compute_balanced_loss(curvature: Tensor, linear: Tensor, z: Tensor) -> Tensor:
    """Return f*, the loss on the target distribution, in which all clusters have equal shares.

    The proposition says that f*(Z_FedAvg) >= f*(Z_CADIS).

    Departure: this does not always hold. For two clusters, the large one first, it holds if and
    only if P + Q >= 2 a_1 / (a_1 + a_2), where P and Q are the weights of cluster 1 in the two
    limits. This is always true for one local step, and for a_1 <= a_2. But if there are many local
    steps and the large cluster has a much larger curvature, the steps bias both limits towards the
    small cluster, and the additional weight of the large cluster corrects that bias. A
    counterexample is a = (1, 0.01), b = (1, -1), eta = 0.4, 50 steps. The difference that the paper
    prints holds for b_1 = -b_3 only.
    """
    return (curvature * z**2 + linear * z).mean()


def _fixed_point(
    curvature: Tensor, linear: Tensor, shares: Tensor, learning_rate: float, steps: int
) -> Tensor:
    """Return the mean of the clusters' minima, weighted by share and progress of local training."""
    minima = -linear / (2 * curvature)
    progress = 1 - (1 - 2 * curvature * learning_rate) ** steps  # 1 - phi_c
    weights = shares * progress
    return (weights * minima).sum() / weights.sum()
