"""Hierarchical clusterings of clients, and scores that tell which of them has true clusters."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cadis.algorithm.vectors import compute_kernel

_MIN_DISTANCE = 0.1  # denominator of the silhouette if all distances are smaller


@dataclass(frozen=True)
class Hierarchy:
    """The clusterings of average linkage for 1, 2, 3, ... clusters."""

    labels: list[Tensor]  # of 2, 3, ... clusters, in order of first appearance, each (n,)
    levels: Tensor  # similarity at which the clusters are merged, to n - 1, ..., 1, (n - 1,)

    @classmethod
    def build(cls, similarity: Tensor, max_clusters: int) -> "Hierarchy":
        """Merge the most similar clusters until one is left.

        Clusterings into one cluster per client are left out: they say nothing about clusters.

        Args:
            similarity: similarities of clients, (n, n).
            max_clusters: clusterings into more clusters are left out.
        """
        from scipy.cluster.hierarchy import linkage  # noqa: PLC0415  # slow to import

        size = len(similarity)
        if size < 2:
            return cls([], torch.zeros(0, dtype=torch.float64))
        rows, columns = torch.triu_indices(size, size, offset=1)
        tree = torch.from_numpy(linkage((1 - similarity[rows, columns]).numpy(), "average"))
        labels, clusterings = torch.arange(size), []
        smallest = list(range(size))  # smallest index of a client, for each node of the tree
        for merge, (first, second) in enumerate(tree[:, :2].long().tolist()):
            if 2 <= size - merge <= min(max_clusters, size - 1):
                clusterings.append(labels.unique(return_inverse=True)[1])
            target, other = sorted((smallest[first], smallest[second]))
            labels = torch.where(labels == other, target, labels)
            smallest.append(target)
        return cls(clusterings[::-1], 1 - tree[:, 2])

    def get_labels(self, number: int) -> Tensor:
        """Return the labels of a number of clusters, (n,)."""
        return self.labels[number - 2] if number > 1 else torch.zeros(len(self.levels) + 1).long()

    def get_level(self, number: int) -> float:
        """Return a level at which average linkage stops at a number of clusters; -1 for one."""
        return float(self.levels[-number : 2 - number or None].mean()) if number > 1 else -1.0

    def compute_scores(self, similarity: Tensor, profiles: Tensor) -> Tensor:
        """Return the scores of 2, 3, ... clusters, (c,)."""
        gaps = compute_spectral_gaps(compute_kernel(profiles))[1 : len(self.labels) + 1]
        silhouettes = [compute_silhouette(similarity, labels) for labels in self.labels]
        return (gaps + torch.tensor(silhouettes, dtype=torch.float64)) / 2


def compute_spectral_gaps(kernel: Tensor) -> Tensor:
    """Return the gaps between successive eigenvalues of a normalized adjacency matrix.

    Gap m is ``lambda_m - lambda_(m+1)``, for the eigenvalues of ``D^-1/2 K D^-1/2`` in descending
    order, where D is the diagonal matrix of the row sums of K. It is 1 if there are m separate
    clusters of identical clients, since m eigenvalues are then 1 and the others 0.

    Args:
        kernel: K, weights of the edges between clients, 1 on the diagonal, (n, n).

    Returns:
        Gaps 1, 2, ..., n - 1, (n - 1,).

    Example:
        >>> import torch
        >>> from cadis.algorithm.methods.cadis.hierarchy import compute_spectral_gaps
        >>> pairs = torch.block_diag(torch.ones(2, 2), torch.ones(2, 2))
        >>> [abs(round(gap, 3)) for gap in compute_spectral_gaps(pairs).tolist()]
        [0.0, 1.0, 0.0]
    """
    scale = kernel.sum(dim=1).rsqrt()
    eigenvalues: Tensor = torch.linalg.eigvalsh(scale[:, None] * kernel * scale).flip(0)
    return eigenvalues[:-1] - eigenvalues[1:]


def compute_silhouette(similarity: Tensor, labels: Tensor) -> float:
    """Return the mean silhouette of the clients.

    The silhouette of a client is ``(b - a) / max(a, b)``. Here a is its mean distance to the other
    clients of its cluster, b its mean distance to the clients of the nearest other cluster, and a
    distance is 1 minus the similarity. It is 0 for a client that is alone in its cluster.

    Args:
        similarity: similarities of clients, 1 on the diagonal, (n, n).
        labels: cluster of each client, numbered from 0 without gaps, at least two clusters, (n,).
    """
    members = torch.nn.functional.one_hot(labels).to(similarity.dtype)  # (n, clusters)
    sizes = members.sum(dim=0)
    sums, index = similarity @ members, labels[:, None]
    within = 1 - (sums.gather(1, index)[:, 0] - 1) / (sizes[labels] - 1).clamp(min=1)
    between = 1 - (sums / sizes).scatter(1, index, -torch.inf).amax(dim=1)
    silhouettes = (between - within) / torch.maximum(within, between).clamp(min=_MIN_DISTANCE)
    return float(torch.where(sizes[labels] > 1, silhouettes, 0).mean())
