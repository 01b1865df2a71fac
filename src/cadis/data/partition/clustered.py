"""Partitions with clusters: MC, several of unequal size; BC and UC, one cluster and loners."""

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, MinLen
from torch import Tensor

from cadis.data.partition.splitting import (
    Partition,
    apportion,
    check_enough,
    deal_out,
    equal_counts,
    uneven_sizes,
)
from cadis.errors import CadisError


@dataclass(frozen=True)
class MultiCluster:
    """Sample-unbalanced multi-cluster partition (the paper's Section V-A).

    The classes are dealt to the clusters. Clients of one cluster have the same label
    distribution: as many samples of each of its classes. How many is unbalanced: normal around
    a mean that does not depend on the cluster, so a cluster of three times the clients has
    three times the data. Sizes are as large as the scarcest class allows.

    Attributes:
        ratio: relative number of clients of the clusters; each cluster has classes of its own.
        classes_per_cluster: classes of each cluster, or "auto" to deal out all classes.
        size_deviation: deviation of the clients' sizes, as a part of their mean; sizes stay
            within half and one and a half times the mean.
    """

    ratio: Annotated[tuple[Annotated[int, Gt(0)], ...], MinLen(1)] = (3, 3, 2, 1, 1)
    classes_per_cluster: Annotated[int, Gt(0)] | Literal["auto"] = "auto"
    size_deviation: Annotated[float, Ge(0)] = 0.2

    name: ClassVar[str] = "mc"

    def deal(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """See :meth:`Partitioner.deal`."""
        check_enough(len(labels), num_clients, minimum)
        true_clusters = self._deal_clients(num_clients)
        held_by_cluster = self._deal_classes(labels.unique(), generator)
        sizes = uneven_sizes(num_clients, self.size_deviation, generator)
        counts = equal_counts(labels, held_by_cluster[true_clusters], sizes, minimum)
        return Partition(deal_out(labels, counts, generator), true_clusters)

    def _deal_clients(self, num_clients: int) -> Tensor:
        """Return the cluster of each client, by the ratio, at least one client each."""
        clusters = len(self.ratio)
        if num_clients < clusters:
            raise CadisError(
                f"{num_clients} clients cannot form {clusters} clusters; "
                "ask for more clients or give a ratio with fewer clusters."
            )
        ratio = torch.tensor(self.ratio, dtype=torch.float64)
        beyond_one = (num_clients * ratio / ratio.sum() - 1).clamp(min=0)
        spare = torch.tensor([num_clients - clusters])
        members = 1 + apportion(spare, beyond_one[None])[0]
        return torch.arange(clusters).repeat_interleave(members)

    def _deal_classes(self, classes: Tensor, generator: torch.Generator) -> Tensor:
        """Return which classes each cluster holds, (clusters, classes), bool."""
        clusters, all_classes = len(self.ratio), self.classes_per_cluster == "auto"
        each = 1 if self.classes_per_cluster == "auto" else self.classes_per_cluster
        if clusters * each > len(classes):
            own = "" if all_classes else f" of {each} classes each"
            raise CadisError(
                f"{clusters} clusters{own} cannot own distinct ones of {len(classes)} classes; "
                "ask for fewer, as by the ratio 3:1, or for another partition, as dirichlet."
            )
        order = classes[torch.randperm(len(classes), generator=generator)]
        owned = order if all_classes else order[: clusters * each]
        held = torch.zeros(clusters, int(classes.max()) + 1, dtype=torch.bool)
        for cluster, own_classes in enumerate(owned.tensor_split(clusters)):
            held[cluster, own_classes] = True
        return held


@dataclass(frozen=True)
class BalancedCluster:
    """Sample-balanced single cluster (the paper's Section V-C): everybody has as many samples.

    The clients of the cluster hold the same classes. Each of the others holds a set of classes
    that nobody else holds; classes that few hold come first.

    Attributes:
        majority: share of the clients that form the cluster.
        classes_per_client: classes of each client, or "auto" for a fifth of all.
    """

    majority: Annotated[float, Gt(0), Le(1)] = 0.6
    classes_per_client: Annotated[int, Gt(0)] | Literal["auto"] = "auto"

    name: ClassVar[str] = "bc"

    def deal(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """See :meth:`Partitioner.deal`."""
        check_enough(len(labels), num_clients, minimum)
        sizes = self._sizes(num_clients, generator)
        members = max(1, round(self.majority * num_clients))
        loners = num_clients - members
        held = self._deal_classes(labels.unique(), members, loners, generator)
        counts = equal_counts(labels, held, sizes, minimum)
        true_clusters = torch.cat([torch.zeros(members).long(), torch.arange(1, loners + 1)])
        return Partition(deal_out(labels, counts, generator), true_clusters)

    def _sizes(self, num_clients: int, _generator: torch.Generator) -> Tensor:
        return torch.ones(num_clients).double()

    def _deal_classes(
        self, classes: Tensor, members: int, loners: int, generator: torch.Generator
    ) -> Tensor:
        """Return which classes each client holds, (clients, classes), bool."""
        asked = self.classes_per_client
        each = max(1, round(len(classes) / 5)) if asked == "auto" else asked
        sets = comb(len(classes), each)
        if sets < 1 + loners:
            raise CadisError(
                f"{loners} clients and a cluster cannot each have {each} classes of their own: "
                f"{len(classes)} classes make {sets} such sets; ask for fewer clients, a larger "
                "majority, or another number of classes per client."
            )
        order = classes[torch.randperm(len(classes), generator=generator)].tolist()
        times_held = dict.fromkeys(order, 0)
        taken: set[frozenset[int]] = set()
        held = torch.zeros(members + loners, max(order) + 1, dtype=torch.bool)
        for group in [slice(0, members), *range(members, members + loners)]:
            rarest_first = sorted(times_held, key=times_held.__getitem__)
            candidates = map(frozenset, combinations(rarest_first, each))
            chosen = next(candidate for candidate in candidates if candidate not in taken)
            taken.add(chosen)
            held[group, list(chosen)] = True
            for label in chosen:
                times_held[label] += members if isinstance(group, slice) else 1
        return held


@dataclass(frozen=True)
class UnbalancedCluster(BalancedCluster):
    """Sample-unbalanced single cluster (the paper's Section V-C): as BC, of unequal sizes.

    Attributes:
        size_deviation: deviation of the clients' sizes, as a part of their mean; sizes stay
            within half and one and a half times the mean.
    """

    size_deviation: Annotated[float, Ge(0)] = 0.2

    name: ClassVar[str] = "uc"

    def _sizes(self, num_clients: int, generator: torch.Generator) -> Tensor:
        return uneven_sizes(num_clients, self.size_deviation, generator)
