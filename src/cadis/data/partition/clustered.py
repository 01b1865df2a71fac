"""Partitions with clusters of clients, from the CADIS paper.

MC (multi-cluster) has several clusters with different numbers of clients. BC (balanced cluster) and
UC (unbalanced cluster) have one large cluster; each of the other clients has its own set of
classes. Balanced means that all clients have equally many samples.

Nguyen et al. CADIS: Handling Cluster-skewed Non-IID Data in Federated Learning with Clustered
Aggregation and Knowledge DIStilled Regularization. CCGrid 2023. https://arxiv.org/abs/2302.10413
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, MinLen
from torch import Tensor

from cadis.data.partition.splitting import (
    Partition,
    assign_clusters,
    assign_samples,
    check_enough_samples,
    compute_equal_counts,
    draw_sizes,
    swap_samples,
)
from cadis.errors import CadisError


@dataclass(frozen=True)
class MultiCluster:
    """Sample-unbalanced multi-cluster partition (Section V-A of the CADIS paper).

    Each cluster has its own classes. Clients of one cluster have the same label distribution:
    equally many samples of each class of the cluster. The number of samples per client is drawn
    from a normal distribution whose mean is the same for all clusters, so a cluster with three
    times as many clients has about three times as many samples. The mean is as large as the class
    with the fewest samples allows.

    Attributes:
        ratio: number of clients in each cluster, as a ratio such as 3:1 for two clusters; each
            cluster has its own classes.
        classes_per_cluster: number of classes in each cluster; "auto" divides all classes among the
            clusters.
        size_deviation: standard deviation of the number of samples per client, divided by the
            mean; the number is always between 0.5 and 1.5 times the mean.
        fuzzy: fraction of each client's samples that are exchanged with random clients.

    Example:
        >>> import torch
        >>> from cadis.data.partition import MultiCluster
        >>> labels = torch.arange(400) % 4
        >>> rng = torch.Generator().manual_seed(0)
        >>> partition = MultiCluster(ratio=(3, 1)).split(labels, 4, 2, rng)
        >>> partition.true_clusters.tolist()
        [0, 0, 0, 1]
    """

    ratio: Annotated[tuple[Annotated[int, Gt(0)], ...], MinLen(1)] = (3, 3, 2, 1, 1)
    classes_per_cluster: Annotated[int, Gt(0)] | Literal["auto"] = "auto"
    size_deviation: Annotated[float, Ge(0)] = 0.2
    fuzzy: Annotated[float, Ge(0), Le(1)] = 0.0

    name: ClassVar[str] = "mc"

    def split(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """See :meth:`Partitioner.split`."""
        check_enough_samples(len(labels), num_clients, minimum)
        true_clusters = assign_clusters(self.ratio, num_clients)
        held_by_cluster = self._assign_classes(labels.unique(), generator)
        sizes = draw_sizes(num_clients, self.size_deviation, generator)
        counts = compute_equal_counts(labels, held_by_cluster[true_clusters], sizes, minimum)
        indices = swap_samples(assign_samples(labels, counts, generator), self.fuzzy, generator)
        return Partition(indices, true_clusters)

    def _assign_classes(self, classes: Tensor, generator: torch.Generator) -> Tensor:
        """Draw the classes of each cluster, (clusters, classes), bool."""
        clusters, is_auto = len(self.ratio), self.classes_per_cluster == "auto"
        per_cluster = 1 if self.classes_per_cluster == "auto" else self.classes_per_cluster
        if clusters * per_cluster > len(classes):
            each = "" if is_auto else f" of {per_cluster} classes each"
            raise CadisError(
                f"{len(classes)} classes are too few for {clusters} clusters{each} without a "
                "common class; ask for fewer clusters, for example with the ratio 3:1, or choose "
                "another partition, for example dirichlet."
            )
        order = classes[torch.randperm(len(classes), generator=generator)]
        selected = order if is_auto else order[: clusters * per_cluster]
        held = torch.zeros(clusters, int(classes.max()) + 1, dtype=torch.bool)
        for cluster, cluster_classes in enumerate(selected.tensor_split(clusters)):
            held[cluster, cluster_classes] = True
        return held


@dataclass(frozen=True)
class BalancedCluster:
    """Sample-balanced single-cluster partition (Section V-C of the CADIS paper).

    All clients have equally many samples. The clients of the cluster hold the same classes. Each
    of the other clients holds a set of classes that no other client holds. Classes that few clients
    hold are chosen first.

    Attributes:
        majority: fraction of the clients that belong to the large cluster.
        classes_per_client: number of classes of each client; "auto" is a fifth of all classes.

    Example:
        >>> import torch
        >>> from cadis.data.partition import BalancedCluster
        >>> labels = torch.arange(400) % 4
        >>> rng = torch.Generator().manual_seed(0)
        >>> partition = BalancedCluster(majority=0.5).split(labels, 4, 2, rng)
        >>> partition.true_clusters.tolist()
        [0, 0, 1, 2]
    """

    majority: Annotated[float, Gt(0), Le(1)] = 0.6
    classes_per_client: Annotated[int, Gt(0)] | Literal["auto"] = "auto"

    name: ClassVar[str] = "bc"

    def split(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """See :meth:`Partitioner.split`."""
        check_enough_samples(len(labels), num_clients, minimum)
        sizes = self._draw_sizes(num_clients, generator)
        members = max(1, round(self.majority * num_clients))
        others = num_clients - members
        held = self._assign_classes(labels.unique(), members, others, generator)
        counts = compute_equal_counts(labels, held, sizes, minimum)
        true_clusters = torch.cat([torch.zeros(members).long(), torch.arange(1, others + 1)])
        return Partition(assign_samples(labels, counts, generator), true_clusters)

    def _draw_sizes(self, num_clients: int, _generator: torch.Generator) -> Tensor:
        return torch.ones(num_clients).double()

    def _assign_classes(
        self, classes: Tensor, members: int, others: int, generator: torch.Generator
    ) -> Tensor:
        """Choose the classes of each client, (clients, classes), bool.

        Args:
            classes: labels that occur in the data, (classes,).
            members: number of clients in the cluster.
            others: number of clients outside the cluster.
            generator: source of the random order of the classes.
        """
        fifth = max(1, round(len(classes) / 5))
        per_client = fifth if self.classes_per_client == "auto" else self.classes_per_client
        num_sets = comb(len(classes), per_client)
        if num_sets < 1 + others:
            raise CadisError(
                f"{others} clients and a cluster cannot each have a different set of {per_client} "
                f"classes: {len(classes)} classes allow {num_sets} sets; ask for fewer clients, a "
                "larger majority, or another number of classes per client."
            )
        order = classes[torch.randperm(len(classes), generator=generator)].tolist()
        times_held = dict.fromkeys(order, 0)
        taken: set[frozenset[int]] = set()
        held = torch.zeros(members + others, max(order) + 1, dtype=torch.bool)
        for clients in [slice(0, members), *range(members, members + others)]:
            rarest_first = sorted(times_held, key=times_held.__getitem__)
            candidates = map(frozenset, combinations(rarest_first, per_client))
            chosen = next(candidate for candidate in candidates if candidate not in taken)
            taken.add(chosen)
            held[clients, list(chosen)] = True
            for label in chosen:
                times_held[label] += members if isinstance(clients, slice) else 1
        return held


@dataclass(frozen=True)
class UnbalancedCluster(BalancedCluster):
    """Sample-unbalanced single-cluster partition (Section V-C of the CADIS paper).

    The same as :class:`BalancedCluster`, but clients have different numbers of samples.

    Attributes:
        size_deviation: standard deviation of the number of samples per client, divided by the
            mean; the number is always between 0.5 and 1.5 times the mean.

    Example:
        >>> import torch
        >>> from cadis.data.partition import UnbalancedCluster
        >>> labels = torch.arange(400) % 4
        >>> rng = torch.Generator().manual_seed(0)
        >>> partition = UnbalancedCluster(majority=0.5).split(labels, 4, 2, rng)
        >>> partition.true_clusters.tolist()
        [0, 0, 1, 2]
    """

    size_deviation: Annotated[float, Ge(0)] = 0.2

    name: ClassVar[str] = "uc"

    def _draw_sizes(self, num_clients: int, generator: torch.Generator) -> Tensor:
        return draw_sizes(num_clients, self.size_deviation, generator)
