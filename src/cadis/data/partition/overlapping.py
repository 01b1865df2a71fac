"""Partitions with clusters of clients that share classes, as in real federations."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, MinLen
from torch import Tensor

from cadis.data.partition.splitting import (
    Partition,
    apportion,
    assign_clusters,
    assign_samples,
    check_enough_samples,
    draw_sizes,
    raise_to_minimum,
    swap_samples,
)

Ratio: TypeAlias = Annotated[tuple[Annotated[int, Gt(0)], ...], MinLen(1)]


@dataclass(frozen=True)
class _RandomClusters:
    """Clusters of clients whose labels are drawn from the label distribution of the cluster.

    Attributes:
        ratio: number of clients in each cluster, as a ratio such as 3:1 for two clusters.
        samples_per_client: mean number of samples per client; "auto" is the largest possible.
        size_deviation: standard deviation of the number of samples per client, divided by the
            mean; the number is always between 0.5 and 1.5 times the mean.
        fuzzy: fraction of each client's samples that are exchanged with random clients.
    """

    ratio: Ratio = (4, 3, 2, 1)
    samples_per_client: Annotated[int, Gt(0)] | Literal["auto"] = "auto"
    size_deviation: Annotated[float, Ge(0)] = 0.4
    fuzzy: Annotated[float, Ge(0), Le(1)] = 0.0

    def _split(
        self,
        shares: Tensor,
        labels: Tensor,
        num_clients: int,
        minimum: int,
        generator: torch.Generator,
    ) -> Partition:
        """Split samples among clients.

        Args:
            shares: label distribution of each cluster, (clusters, classes).
            labels: labels of all training samples, (n,).
            num_clients: number of clients.
            minimum: smallest number of samples that a client may have.
            generator: source of all random draws.
        """
        check_enough_samples(len(labels), num_clients, minimum)
        true_clusters = assign_clusters(self.ratio, num_clients)
        sizes = draw_sizes(num_clients, self.size_deviation, generator)
        distributions, supply = shares[true_clusters], torch.bincount(labels)
        demand = (sizes[:, None] * distributions).sum(dim=0)  # (classes,)
        mean_size = float((supply / demand)[demand > 0].min())
        if self.samples_per_client != "auto":
            mean_size = min(mean_size, float(self.samples_per_client))
        counts = _draw_labels(
            distributions, (sizes * mean_size).long().clamp(min=minimum), generator
        )
        is_scarce = counts.sum(dim=0) > supply  # by chance: reduce the counts of all clients
        counts[:, is_scarce] = apportion(supply[is_scarce], counts.T[is_scarce]).T
        counts = raise_to_minimum(counts, minimum, generator)
        indices = assign_samples(labels, counts, generator)
        return Partition(swap_samples(indices, self.fuzzy, generator), true_clusters)


@dataclass(frozen=True)
class OverlappingClusters(_RandomClusters):
    """Clusters of clients in which neighboring clusters share classes.

    The classes are put into a random order, as in a circle. Each cluster has some consecutive
    classes, and the clusters begin at equal distances. Clients of one cluster have the same label
    distribution, except for random draws.

    Attributes:
        classes_per_cluster: number of classes in each cluster; "auto" gives each class to two
            clusters.

    Example:
        >>> import torch
        >>> from cadis.data.partition import OverlappingClusters
        >>> labels = torch.arange(400) % 4
        >>> rng = torch.Generator().manual_seed(0)
        >>> partition = OverlappingClusters(ratio=(2, 1, 1, 1)).split(labels, 5, 2, rng)
        >>> [len(labels[indices].unique()) for indices in partition.indices]
        [2, 2, 2, 2, 2]
    """

    ratio: Ratio = (3, 3, 2, 1, 1)
    classes_per_cluster: Annotated[int, Gt(0)] | Literal["auto"] = "auto"

    name: ClassVar[str] = "overlap"

    def split(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """See :meth:`Partitioner.split`."""
        classes = labels.unique()
        order = classes[torch.randperm(len(classes), generator=generator)]
        each = self.classes_per_cluster
        if each == "auto":
            each = -(-2 * len(classes) // len(self.ratio))
        shares = torch.zeros(len(self.ratio), int(classes.max()) + 1, dtype=torch.float64)
        for cluster in range(len(self.ratio)):
            start = cluster * len(classes) // len(self.ratio)
            members = order.roll(-start)[:each]
            shares[cluster, members] = 1 / len(members)
        return self._split(shares, labels, num_clients, minimum, generator)


@dataclass(frozen=True)
class SoftClusters(_RandomClusters):
    """Clusters of clients that may have all classes, but in different proportions.

    Each cluster has one label distribution, drawn from a Dirichlet distribution. Clients of one
    cluster have this distribution, except for random draws.

    Attributes:
        concentration: parameter of the Dirichlet distribution: small values give each cluster few
            classes, large values give all clusters about the same distribution.

    Example:
        >>> import torch
        >>> from cadis.data.partition import SoftClusters
        >>> labels = torch.arange(4000) % 4
        >>> rng = torch.Generator().manual_seed(0)
        >>> partition = SoftClusters(ratio=(3, 1)).split(labels, 4, 2, rng)
        >>> partition.true_clusters.tolist()
        [0, 0, 0, 1]
    """

    concentration: Annotated[float, Gt(0), Le(1e9)] = 0.3

    name: ClassVar[str] = "soft"

    def split(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """See :meth:`Partitioner.split`."""
        classes = labels.unique()
        seed = int(torch.randint(2**62, (), generator=generator))
        alpha = np.full(len(classes), self.concentration)
        shares = torch.zeros(len(self.ratio), int(classes.max()) + 1, dtype=torch.float64)
        drawn = np.random.default_rng(seed).dirichlet(alpha, size=len(self.ratio))
        shares[:, classes] = torch.from_numpy(drawn)
        return self._split(shares, labels, num_clients, minimum, generator)


def _draw_labels(distributions: Tensor, sizes: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the labels of each client; return the number of samples per class, (clients, classes).

    Args:
        distributions: label distribution of each client, (clients, classes).
        sizes: number of samples of each client, (clients,).
        generator: source of the random draws.
    """
    draws = (
        torch.multinomial(distribution, size, replacement=True, generator=generator)
        for distribution, size in zip(distributions, sizes.tolist(), strict=True)
    )
    return torch.stack([drawn.bincount(minlength=distributions.shape[1]) for drawn in draws])
