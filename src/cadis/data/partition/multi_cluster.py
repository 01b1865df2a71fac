"""MC: clusters of clients of unequal number, each with classes of its own."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, MinLen
from torch import Tensor

from cadis.data.partition.protocol import Partition
from cadis.data.partition.splitting import (
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
        held_by_cluster = self._deal_classes(labels, generator)
        sizes = uneven_sizes(num_clients, self.size_deviation, generator)
        counts = equal_counts(labels, held_by_cluster[true_clusters], sizes, minimum)
        return Partition(deal_out(labels, counts, generator), true_clusters)

    def _deal_clients(self, num_clients: int) -> Tensor:
        """Clusters of the clients in order, by the ratio, at least one client each."""
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

    def _deal_classes(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Which classes each cluster holds, (clusters, classes), bool."""
        classes, clusters = labels.unique(), len(self.ratio)
        each = 1 if self.classes_per_cluster == "auto" else self.classes_per_cluster
        if clusters * each > len(classes):
            own = "" if self.classes_per_cluster == "auto" else f" of {each} classes each"
            raise CadisError(
                f"{clusters} clusters{own} cannot own distinct ones of {len(classes)} classes; "
                "ask for fewer, as by the ratio 3:1, or for another partition, as dirichlet."
            )
        dealt = classes[torch.randperm(len(classes), generator=generator)]
        if self.classes_per_cluster != "auto":
            dealt = dealt[: clusters * each]
        held = torch.zeros(clusters, int(classes.max()) + 1, dtype=torch.bool)
        for cluster, owned in enumerate(dealt.tensor_split(clusters)):
            held[cluster, owned] = True
        return held
