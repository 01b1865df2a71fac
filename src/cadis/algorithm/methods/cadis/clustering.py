"""From similarities to clusters: the Q-matrix, the threshold and Eq. 13."""

import torch
from torch import Tensor

from cadis.algorithm.methods.cadis.similarity import nan_where_unknown


def rescale(similarity: Tensor, known: Tensor, lowest: Tensor | None = None) -> Tensor:
    """The Q-matrix: similarities stretched to [0, 1] by their minimum and maximum.

    The diagonal takes part, so that the maximum is always a client's similarity to itself: a
    federation without clusters yields none. If all known entries are equal, everybody is alike.

    Args:
        similarity: observed or estimated similarities, (n, n).
        known: which entries say something; the diagonal always does, (n, n).
        lowest: the minimum, where the matrix is not that of all clients; ().

    Returns:
        q_ij, NaN where nothing is known, (n, n).
    """
    values = nan_where_unknown(similarity, known.clone().fill_diagonal_(True))
    if lowest is None:
        lowest = values.nan_to_num(nan=torch.inf).min()
    spread = values.nan_to_num(nan=-torch.inf).max() - lowest
    return (values - lowest) / spread if spread > 0 else values * 0 + 1


def cluster(q: Tensor, threshold: float) -> Tensor:
    """Clusters: connected components of the graph with an edge where q_ij >= threshold (Eq. 13).

    Args:
        q: the Q-matrix; NaN is no edge, (n, n).
        threshold: epsilon.

    Returns:
        A label per client, numbered from 0 in order of first appearance, (n,), int64.
    """
    if not len(q):
        return torch.zeros(0, dtype=torch.long)
    edges = (q >= threshold).fill_diagonal_(True)
    edges = edges | edges.T
    labels = torch.arange(len(q))
    while True:  # everybody takes the least label around; ends after about log(n) turns
        least = torch.where(edges, labels, len(q)).amin(dim=1)
        least = least[least]
        if torch.equal(least, labels):
            numbered: Tensor = torch.unique(labels, return_inverse=True)[1]
            return numbered
        labels = least


def threshold_at(round: int, start: float, growth: float, maximum: float) -> float:  # noqa: A002
    """The threshold epsilon after ``round`` rounds: it is "updated upward after every round".

    Returns:
        min(maximum, start * (1 + growth) ** round)
    """
    try:
        return min(maximum, start * (1 + growth) ** round)
    except OverflowError:
        return maximum if start > 0 else 0.0
