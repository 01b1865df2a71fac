"""Who has what: a partition in numbers, and what ``federation.json`` tells of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cadis._io import short_repr
from cadis.data import Dataset, Examples
from cadis.data.partition import Partition
from cadis.engine import Federation, labels_of, sizes_of
from cadis.types import ClientId


@dataclass(frozen=True, repr=False)
class PartitionSummary:
    """Who has how much of what.

    Attributes:
        title: the dataset and the partition, as the user types them.
        classes: names of the classes.
        client_ids: names of the clients.
        counts: samples by client and class, (clients, classes).
        true_clusters: the true clusters, where there are any, (clients,).
        available: samples of the training set, dealt out or not.
        tested: samples of the test set.
        held_out: samples that clients have besides, to be tested on.
        own_tests: how many samples each client is tested on, where the data say; else empty.
    """

    title: str
    classes: tuple[str, ...]
    client_ids: tuple[ClientId, ...]
    counts: Tensor
    true_clusters: Tensor | None
    available: int
    tested: int
    held_out: int = 0
    own_tests: tuple[int, ...] = ()

    __repr__ = short_repr

    @classmethod
    def of(
        cls, title: str, dataset: Dataset, partition: Partition, own_tests: Sequence[Examples] = ()
    ) -> "PartitionSummary":
        """Count the samples of each client and class in a partition of a dataset."""
        return cls(
            title,
            dataset.classes,
            partition.client_ids,
            partition.counts(dataset.train.labels, dataset.num_classes),
            partition.true_clusters,
            len(dataset.train),
            len(dataset.test),
            own_tests=tuple(sizes_of(own_tests)),
        )

    @property
    def sizes(self) -> Tensor:
        """Samples of each client, (clients,)."""
        return self.counts.sum(dim=1)

    @property
    def label_skew(self) -> float:
        """How far a client's classes are from everybody's: 0 for IID, towards 1 for strangers.

        The mean over the clients of the total variation distance between the distribution of
        their labels and that of all samples dealt out.
        """
        everybody = self.counts.sum(dim=0) / self.counts.sum()
        own = self.counts / self.sizes[:, None]
        return float((own - everybody).abs().sum(dim=1).mean() / 2)

    @property
    def size_skew(self) -> float:
        """Deviation of the clients' sizes, as a part of their mean."""
        sizes = self.sizes.double()
        return float(sizes.std(correction=0) / sizes.mean())

    def unheld_classes(self) -> list[str]:
        """Classes that no client has."""
        return [self.classes[c] for c in (self.counts.sum(dim=0) == 0).nonzero()[:, 0].tolist()]

    def groups(self) -> list[list[int]]:
        """Positions of the clients by cluster, the largest first; each alone without clusters."""
        if self.true_clusters is None:
            return [[client] for client in range(len(self.client_ids))]
        clusters = self.true_clusters.unique().tolist()
        groups = [(self.true_clusters == c).nonzero()[:, 0].tolist() for c in clusters]
        return sorted(groups, key=len, reverse=True)


def describe_federation(federation: Federation, num_classes: int) -> dict[str, Any]:
    """Who has what: one object a client, with its samples per class and its true cluster.

    Samples are those that a client trains on; those that it has held out are ``test_samples``.
    """
    truth = federation.true_clusters
    clusters = [None] * len(federation.clients) if truth is None else truth.tolist()
    trained, tested = (
        [torch.bincount(labels, minlength=num_classes).tolist() for labels in labels_of(clients)]
        for clients in (federation.clients, federation.client_tests)
    )
    apart = [{"test_samples": own} for own in tested] or [{} for _ in trained]
    parts = zip(federation.client_ids, clusters, trained, apart, strict=True)
    return {
        "classes": list(federation.classes or map(str, range(num_classes))),
        "clients": [
            {"id": client_id, "cluster": true_cluster, "samples": samples, **more}
            for client_id, true_cluster, samples, more in parts
        ],
    }
