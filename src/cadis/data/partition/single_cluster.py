"""BC and UC: one big cluster, and clients that are each alone with their classes."""

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from cadis.data.partition.protocol import Partition
from cadis.data.partition.splitting import check_enough, deal_out, equal_counts, uneven_sizes
from cadis.errors import CadisError


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
        return _deal(self, torch.ones(num_clients).double(), labels, minimum, generator)


@dataclass(frozen=True)
class UnbalancedCluster:
    """Sample-unbalanced single cluster (the paper's Section V-C): as BC, of unequal sizes.

    Attributes:
        majority: share of the clients that form the cluster.
        classes_per_client: classes of each client, or "auto" for a fifth of all.
        size_deviation: deviation of the clients' sizes, as a part of their mean; sizes stay
            within half and one and a half times the mean.
    """

    majority: Annotated[float, Gt(0), Le(1)] = 0.6
    classes_per_client: Annotated[int, Gt(0)] | Literal["auto"] = "auto"
    size_deviation: Annotated[float, Ge(0)] = 0.2

    name: ClassVar[str] = "uc"

    def deal(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """See :meth:`Partitioner.deal`."""
        check_enough(len(labels), num_clients, minimum)
        sizes = uneven_sizes(num_clients, self.size_deviation, generator)
        return _deal(self, sizes, labels, minimum, generator)


def _deal(
    how: BalancedCluster | UnbalancedCluster,
    sizes: Tensor,
    labels: Tensor,
    minimum: int,
    generator: torch.Generator,
) -> Partition:
    members = max(1, round(how.majority * len(sizes)))
    loners = len(sizes) - members
    held = _deal_classes(how.classes_per_client, labels.unique(), members, loners, generator)
    counts = equal_counts(labels, held, sizes, minimum)
    true_clusters = torch.cat([torch.zeros(members).long(), torch.arange(1, loners + 1)])
    return Partition(deal_out(labels, counts, generator), true_clusters)


def _deal_classes(
    asked: int | Literal["auto"],
    classes: Tensor,
    members: int,
    loners: int,
    generator: torch.Generator,
) -> Tensor:
    """Which classes each client holds, (clients, classes), bool."""
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
        chosen = next(s for s in map(frozenset, combinations(rarest_first, each)) if s not in taken)
        taken.add(chosen)
        held[group, list(chosen)] = True
        for label in chosen:
            times_held[label] += members if isinstance(group, slice) else 1
    return held
