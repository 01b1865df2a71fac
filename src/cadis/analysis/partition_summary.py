"""Count the samples of each client and class, and describe a federation for its file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cadis._io import short_repr
from cadis.data import Dataset, Samples
from cadis.data.partition import Partition
from cadis.engine import Federation, count_samples, get_labels
from cadis.types import ClientId


@dataclass(frozen=True, repr=False)
class PartitionSummary:
    """Sample counts of a partition.

    Attributes:
        title: dataset and partition, as users type them.
        classes: names of the classes.
        client_ids: ids of the clients.
        counts: number of samples of each client and class, (clients, classes).
        true_clusters: true cluster of each client, (clients,); None if there are no clusters.
        available: number of samples in the training set, whether assigned to a client or not.
        tested: number of samples in the test set.
        held_out: number of samples that clients hold out for testing.
        own_tests: number of test samples of each client; empty if clients have none.
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
    def from_partition(
        cls, title: str, dataset: Dataset, partition: Partition, own_tests: Sequence[Samples] = ()
    ) -> "PartitionSummary":
        """Count the samples of each client and class in a partition of a dataset."""
        return cls(
            title,
            dataset.classes,
            partition.client_ids,
            partition.count_labels(dataset.train.labels, dataset.num_classes),
            partition.true_clusters,
            len(dataset.train),
            len(dataset.test),
            own_tests=tuple(count_samples(own_tests)),
        )

    @property
    def sizes(self) -> Tensor:
        """Number of samples of each client, (clients,)."""
        return self.counts.sum(dim=1)

    @property
    def label_skew(self) -> float:
        """Distance between the label distributions of the clients and of all data.

        This is the mean total variation distance over the clients: 0 if all clients have the same
        distribution of labels (IID), and close to 1 if no two clients share a class.
        """
        overall = self.counts.sum(dim=0) / self.counts.sum()
        by_client = self.counts / self.sizes[:, None]
        return float((by_client - overall).abs().sum(dim=1).mean() / 2)

    @property
    def size_skew(self) -> float:
        """Standard deviation of the clients' numbers of samples, divided by their mean."""
        sizes = self.sizes.double()
        return float(sizes.std(correction=0) / sizes.mean())

    def find_missing_classes(self) -> list[str]:
        """Return the names of the classes that no client has."""
        return [self.classes[c] for c in (self.counts.sum(dim=0) == 0).nonzero()[:, 0].tolist()]

    def group_clients(self) -> list[list[int]]:
        """Return client indices by cluster, largest cluster first.

        Without true clusters, each client is a group of its own.
        """
        if self.true_clusters is None:
            return [[client] for client in range(len(self.client_ids))]
        clusters = self.true_clusters.unique().tolist()
        groups = [(self.true_clusters == c).nonzero()[:, 0].tolist() for c in clusters]
        return sorted(groups, key=len, reverse=True)


def describe_federation(federation: Federation, num_classes: int) -> dict[str, Any]:
    """Return the content of ``federation.json``: the classes, and an object for each client.

    Each object has the client's id, its true cluster, the number of training samples per class
    (``samples``) and, if the client holds data out, the number of test samples per class
    (``test_samples``).
    """
    truth = federation.true_clusters
    clusters = [None] * len(federation.clients) if truth is None else truth.tolist()
    train_counts, test_counts = (
        [torch.bincount(labels, minlength=num_classes).tolist() for labels in get_labels(clients)]
        for clients in (federation.clients, federation.client_tests)
    )
    test_fields = [{"test_samples": counts} for counts in test_counts] or [{} for _ in train_counts]
    rows = zip(federation.client_ids, clusters, train_counts, test_fields, strict=True)
    return {
        "classes": list(federation.classes or map(str, range(num_classes))),
        "clients": [
            {"id": client_id, "cluster": cluster, "samples": counts, **tests}
            for client_id, cluster, counts, tests in rows
        ],
    }
