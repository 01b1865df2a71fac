"""Hierarchical clusterings of clients, and scores that tell which of them has true clusters."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cadis.algorithm.vectors import compute_kernel

_MIN_DISTANCE = 0.1  # denominator of the silhouette if all distances are smaller


@dataclass(frozen=True)
class Hierarchy:
    """The clusterings of average linkage for 1, 2, 3, ... clusters."""

    labels: Tensor  # of 2, 3, ... clusters, in order of first appearance, (c, n)
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
            return cls(torch.zeros(0, size).long(), torch.zeros(0, dtype=torch.float64))
        rows, columns = np.triu_indices(size, k=1)
        tree = linkage(1 - similarity.numpy()[rows, columns], "average")
        first_members = np.arange(size)  # smallest index in the cluster of each client
        smallest = list(range(size))  # smallest index of a client, for each node of the tree
        clusterings = []
        for merge, (first, second) in enumerate(tree[:, :2].astype(int).tolist()):
            if 2 <= size - merge <= min(max_clusters, size - 1):
                clusterings.append(first_members.copy())
            target, other = sorted((smallest[first], smallest[second]))
            first_members[first_members == other] = target
            smallest.append(target)
        found = np.array(clusterings[::-1], dtype=np.int64).reshape(-1, size)
        numbers = (found == np.arange(size)).cumsum(axis=1) - 1  # label of each first member
        labels = torch.from_numpy(np.take_along_axis(numbers, found, axis=1))
        return cls(labels, torch.from_numpy(1 - tree[:, 2]))

    def get_labels(self, number: int) -> Tensor:
        """Return the labels of a number of clusters, (n,)."""
        return self.labels[number - 2] if number > 1 else torch.zeros(len(self.levels) + 1).long()

    def get_level(self, number: int) -> float:
        """Return a level at which average linkage stops at a number of clusters; -1 for one."""
        return float(self.levels[-number : 2 - number or None].mean()) if number > 1 else -1.0

    def compute_scores(self, similarity: Tensor, profiles: Tensor) -> Tensor:
        """Return the scores of 2, 3, ... clusters, (c,)."""
        gaps = compute_spectral_gaps(compute_kernel(profiles))[1 : len(self.labels) + 1]
        return (gaps + compute_silhouettes(similarity, self.labels)) / 2


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


def compute_silhouettes(similarity: Tensor, labels: Tensor) -> Tensor:
    """Return the mean silhouette of the clients for each of several clusterings, (c,).

    The silhouette of a client is ``(b - a) / max(a, b)``. Here a is its mean distance to the other
    clients of its cluster, b its mean distance to the clients of the nearest other cluster, and a
    distance is 1 minus the similarity. It is 0 for a client that is alone in its cluster.

    Args:
        similarity: similarities of clients, 1 on the diagonal, (n, n).
        labels: cluster of each client, numbered from 0 without gaps, at least two clusters; one row
            per clustering, (c, n).
    """
    if not len(labels):
        return similarity.new_zeros(0)
    members = torch.nn.functional.one_hot(labels).to(similarity.dtype)  # (c, n, clusters)
    sizes, index = members.sum(dim=1), labels[:, :, None]  # (c, clusters), (c, n, 1)
    sums, own_sizes = similarity @ members, sizes.gather(1, labels)  # (c, n, clusters), (c, n)
    within = 1 - (sums.gather(2, index)[:, :, 0] - 1) / (own_sizes - 1).clamp(min=1)
    means = torch.where(sizes[:, None] > 0, sums / sizes[:, None], -torch.inf)
    between = 1 - means.scatter(2, index, -torch.inf).amax(dim=2)
    silhouettes = (between - within) / torch.maximum(within, between).clamp(min=_MIN_DISTANCE)
    return torch.where(own_sizes > 1, silhouettes, 0).mean(dim=1)
