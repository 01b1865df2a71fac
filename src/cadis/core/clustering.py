"""From similarities to clusters: the Q-matrix, the threshold and Eq. 13."""

import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor


def rescale(similarity: Tensor, known: Tensor) -> Tensor:
    """The Q-matrix: similarities stretched to [0, 1] by their minimum and maximum.

    The diagonal takes part, so that the maximum is always a client's similarity to itself: a
    federation without clusters yields none. If all known entries are equal, everybody is alike.

    Args:
        similarity: observed or estimated similarities, (n, n).
        known: which entries say something; the diagonal always does, (n, n).

    Returns:
        q_ij, NaN where nothing is known, (n, n).
    """
    known = known | torch.eye(len(known), dtype=torch.bool)
    lowest = torch.where(known, similarity, torch.inf).min()
    highest = torch.where(known, similarity, -torch.inf).max()
    spread = highest - lowest
    scaled = (similarity - lowest) / spread if spread > 0 else torch.ones_like(similarity)
    return torch.where(known, scaled, torch.nan)


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
    edges = csr_array((q >= threshold).numpy())
    _, labels = connected_components(edges, directed=False)
    first_seen = {label: number for number, label in enumerate(dict.fromkeys(labels.tolist()))}
    return torch.tensor([first_seen[label] for label in labels.tolist()], dtype=torch.long)


def threshold_at(round: int, start: float, growth: float, maximum: float) -> float:  # noqa: A002
    """The threshold epsilon after ``round`` rounds: it is "updated upward after every round".

    Returns:
        min(maximum, start * (1 + growth) ** round)
    """
    return min(maximum, start * (1 + growth) ** round)
