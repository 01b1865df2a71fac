"""MC: clusters of clients of unequal number, each with classes of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cadis.core import CadisError

_SIZE_DEVIATION = 0.2
_SIZE_RANGE = (0.5, 1.5)


@dataclass(frozen=True)
class Partition:
    """Who owns what.

    Attributes:
        indices: each client's examples; no example belongs to two clients.
        cluster_of_client: the true cluster of each client, (n,).
    """

    indices: tuple[Tensor, ...]
    cluster_of_client: Tensor


def multi_cluster(
    labels: Tensor, num_clients: int, ratio: Sequence[int], generator: torch.Generator
) -> Partition:
    """Sample-unbalanced multi-cluster partition (the paper's Section V-A).

    The classes are dealt to the clusters. Clients of one cluster have the same label
    distribution: as many samples of each of its classes. How many is unbalanced: normal
    with a deviation of a fifth of the mean, within half and one and a half times the mean.
    Sizes do not depend on the cluster, so a cluster of three times the clients has three times
    the data; they are as large as the scarcest class allows.

    Args:
        labels: of all examples, (n,).
        num_clients: to be divided among the clusters.
        ratio: relative number of clients of the clusters, e.g. (3, 3, 2, 1, 1).
        generator: deals the classes, the sizes and the samples.
    """
    cluster_of_client = _deal_clients(num_clients, ratio)
    classes = labels.unique()
    if len(classes) < len(ratio):
        raise CadisError(
            f"{len(ratio)} clusters cannot own distinct classes of {len(classes)}; "
            "give a ratio with fewer clusters."
        )
    dealt = classes[torch.randperm(len(classes), generator=generator)].tensor_split(len(ratio))
    low, high = _SIZE_RANGE
    sizes = 1 + _SIZE_DEVIATION * torch.randn(num_clients, generator=generator).clamp(-9, 9)
    sizes = sizes.clamp(low, high)
    scale = _largest_scale(labels, dealt, cluster_of_client, sizes)
    counts = (sizes * scale).floor().long()  # samples of each of its classes
    if counts.min() < 1:
        raise CadisError(
            f"{num_clients} clients are too many for {len(labels)} samples; ask for fewer clients."
        )
    indices: list[list[Tensor]] = [[] for _ in range(num_clients)]
    for number, owned in enumerate(dealt):
        members = (cluster_of_client == number).nonzero()[:, 0].tolist()
        for label in owned:
            samples = (labels == label).nonzero()[:, 0]
            samples = samples[torch.randperm(len(samples), generator=generator)]
            shares = samples.split(
                [*counts[members].tolist(), len(samples) - counts[members].sum()]
            )
            for client, share in zip(members, shares, strict=False):
                indices[client].append(share)
    return Partition(tuple(torch.cat(parts) for parts in indices), cluster_of_client)


def _deal_clients(num_clients: int, ratio: Sequence[int]) -> Tensor:
    """Clusters of the clients in order, by largest remainders, at least one client each."""
    if num_clients < len(ratio):
        raise CadisError(
            f"{num_clients} clients cannot form {len(ratio)} clusters; "
            "ask for more clients or give a ratio with fewer clusters."
        )
    spare = num_clients - len(ratio)
    exact = [max(0.0, num_clients * part / sum(ratio) - 1) for part in ratio]
    scaled = [spare * part / (sum(exact) or 1) for part in exact]
    counts = [1 + int(part) for part in scaled]
    by_remainder = sorted(range(len(ratio)), key=lambda c: int(scaled[c]) - scaled[c])
    for cluster in by_remainder[: num_clients - sum(counts)]:
        counts[cluster] += 1
    return torch.arange(len(ratio)).repeat_interleave(torch.tensor(counts))


def _largest_scale(
    labels: Tensor, dealt: Sequence[Tensor], cluster_of_client: Tensor, sizes: Tensor
) -> float:
    """The largest factor of the sizes that every class of every cluster can supply."""
    supply = torch.bincount(labels)
    return min(
        float(supply[owned].min() / sizes[cluster_of_client == number].sum())
        for number, owned in enumerate(dealt)
    )
