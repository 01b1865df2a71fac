"""Partitions, the interface of partitioners, and functions that several partitioners use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from cadis._io import short_repr
from cadis.errors import CadisError
from cadis.types import ClientId


@dataclass(frozen=True, repr=False)
class Partition:
    """An assignment of training samples to clients.

    Attributes:
        indices: indices of each client's training samples, one tensor per client.
        true_clusters: number of the true cluster of each client, (clients,); None if unknown.
        client_ids: ids of the clients; by default 0, 1, 2, ...

    Example:
        >>> import torch
        >>> from cadis.data.partition import Partition
        >>> partition = Partition((torch.tensor([0, 1]), torch.tensor([2])))
        >>> partition.client_ids
        (0, 1)
        >>> labels = torch.tensor([0, 1, 1])
        >>> partition.count_labels(labels, num_classes=2).tolist()
        [[1, 1], [0, 1]]
    """

    indices: tuple[Tensor, ...]
    true_clusters: Tensor | None = None
    client_ids: tuple[ClientId, ...] = ()

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if not self.client_ids:
            object.__setattr__(self, "client_ids", tuple(range(len(self.indices))))

    def count_labels(self, labels: Tensor, num_classes: int) -> Tensor:
        """Count the samples of each client and class.

        Args:
            labels: labels of all training samples, (n,).
            num_classes: number of classes.

        Returns:
            Number of samples, (clients, classes).
        """
        return torch.stack(
            [torch.bincount(labels[indices], minlength=num_classes) for indices in self.indices]
        )


class Partitioner(Protocol):
    """Interface of a partitioner: a frozen dataclass of its parameters."""

    name: ClassVar[str]

    def split(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """Split training samples among clients; no sample belongs to two clients.

        Args:
            labels: labels of all training samples, (n,).
            num_clients: number of clients.
            minimum: smallest number of samples that a client may have.
            generator: source of all random draws.
        """


def assign_samples(
    labels: Tensor, counts: Tensor, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Draw samples for each client at random.

    Args:
        labels: labels of all samples, (n,).
        counts: number of samples of each client and class, (clients, classes).
        generator: source of the random order.

    Returns:
        Indices of the samples of each client.
    """
    order = torch.randperm(len(labels), generator=generator)
    by_class = order[labels[order].argsort(stable=True)]  # shuffled within each class
    supply = torch.bincount(labels, minlength=counts.shape[1]).tolist()
    selected, clients = [], []
    for samples, column in zip(by_class.split(supply), counts.T, strict=True):
        selected.append(samples[: int(column.sum())])
        clients.append(torch.arange(len(counts)).repeat_interleave(column))
    by_client = torch.cat(clients).argsort(stable=True)
    sizes = counts.sum(dim=1).tolist()
    indices: tuple[Tensor, ...] = torch.cat(selected)[by_client].split(sizes)
    return indices


def apportion(totals: Tensor, weights: Tensor) -> Tensor:
    """Split each total into integers in proportion to weights (largest remainder method).

    Args:
        totals: integers to split, (rows,).
        weights: nonnegative weights, (rows, columns); a row with a positive total needs a
            positive weight.

    Returns:
        Integers, (rows, columns); each row sums to its total.
    """
    weights = weights.double()
    exact = totals[:, None] * weights / weights.sum(dim=1, keepdim=True).clamp(min=1e-300)
    whole = exact.floor()
    missing = totals - whole.sum(dim=1).long()
    rank = (whole - exact).argsort(dim=1, stable=True).argsort(dim=1, stable=True)
    return whole.long() + (rank < missing[:, None])


def assign_clusters(ratio: Sequence[int], num_clients: int) -> Tensor:
    """Return the cluster of each client, (clients,); each cluster has at least one client.

    Args:
        ratio: relative number of clients in each cluster.
        num_clients: number of clients.
    """
    clusters = len(ratio)
    if num_clients < clusters:
        raise CadisError(
            f"{num_clients} clients cannot form {clusters} clusters; "
            "ask for more clients, or give a ratio with fewer clusters."
        )
    shares = torch.tensor(ratio, dtype=torch.float64)
    beyond_one = (num_clients * shares / shares.sum() - 1).clamp(min=0)
    spare = torch.tensor([num_clients - clusters])
    members = 1 + apportion(spare, beyond_one[None])[0]
    return torch.arange(clusters).repeat_interleave(members)


def raise_to_minimum(counts: Tensor, minimum: int, generator: torch.Generator) -> Tensor:
    """Move samples from large clients to clients that have fewer than the minimum.

    Args:
        counts: number of samples of each client and class, (clients, classes).
        minimum: smallest number of samples that a client may have.
        generator: source of the random draws.

    Returns:
        The new counts, (clients, classes).
    """
    sizes = counts.sum(dim=1)
    lacking = (minimum - sizes).clamp(min=0)
    if not lacking.any():
        return counts
    surplus = (sizes - minimum).clamp(min=0)
    num_taken = apportion(lacking.sum()[None], surplus[None])[0]  # (clients,)
    taken = apportion(num_taken, counts)  # (clients, classes)
    pool = torch.arange(counts.shape[1]).repeat_interleave(taken.sum(dim=0))
    pool = pool[torch.randperm(len(pool), generator=generator)]
    receivers = torch.arange(len(counts)).repeat_interleave(lacking)
    counts = counts - taken
    return counts.index_put((receivers, pool), torch.ones_like(pool), accumulate=True)


def split_by_shares(
    labels: Tensor, shares: Tensor, minimum: int, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Split the samples of each class in proportion to the clients' shares of the class.

    Clients below the minimum receive samples of larger clients.

    Args:
        labels: labels of all samples, (n,).
        shares: relative share that each client receives of each class, (classes, clients).
        minimum: smallest number of samples that a client may have.
        generator: source of the random draws.

    Returns:
        Indices of the samples of each client.
    """
    counts = apportion(torch.bincount(labels), shares).T  # (clients, classes)
    return assign_samples(labels, raise_to_minimum(counts, minimum, generator), generator)


def swap_samples(
    indices: tuple[Tensor, ...], fraction: float, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Exchange a fraction of each client's samples with random samples of all clients.

    Each client keeps its number of samples.

    Args:
        indices: indices of the samples of each client.
        fraction: fraction of the samples of each client that are exchanged, from 0 to 1.
        generator: source of the random draws.
    """
    if not fraction:
        return indices
    sizes = [len(samples) for samples in indices]
    swapped = [
        torch.randperm(size, generator=generator)[: round(fraction * size)] + start
        for size, start in zip(sizes, [0, *torch.tensor(sizes).cumsum(0).tolist()], strict=False)
    ]
    positions, samples = torch.cat(swapped), torch.cat(indices)
    samples[positions] = samples[positions[torch.randperm(len(positions), generator=generator)]]
    exchanged: tuple[Tensor, ...] = samples.split(sizes)
    return exchanged


def check_enough_samples(num_samples: int, num_clients: int, minimum: int) -> None:
    """Raise an error if there are too few samples for all clients."""
    if num_clients * minimum > num_samples:
        raise CadisError(
            f"{num_clients} clients with at least {minimum} samples each are too many for "
            f"{num_samples} samples; ask for fewer clients, or lower --min-samples."
        )


def draw_sizes(num_clients: int, deviation: float, generator: torch.Generator) -> Tensor:
    """Draw relative client sizes from a normal distribution with mean 1, (clients,).

    Sizes are clamped to the range from 0.5 to 1.5.
    """
    noise = torch.randn(num_clients, generator=generator, dtype=torch.float64)
    return (1 + deviation * noise).clamp(0.5, 1.5)


def compute_equal_counts(labels: Tensor, held: Tensor, sizes: Tensor, minimum: int) -> Tensor:
    """Compute sample counts such that a client has equally many samples of each class it holds.

    The counts are as large as the class with the fewest samples allows.

    Args:
        labels: labels of all samples, (n,).
        held: whether a client holds a class, (clients, classes), bool.
        sizes: relative number of samples of each client, (clients,).
        minimum: smallest number of samples that a client may have.

    Returns:
        Number of samples of each client and class, (clients, classes): at least one of each
        class that the client holds, and at least ``minimum`` in total per client.
    """
    supply, classes_held = torch.bincount(labels), held.sum(dim=1)
    # minimum number of samples of each held class, for each client, (clients,)
    min_per_class = (minimum / classes_held).ceil().clamp(min=1)
    _check_supply(supply, held, min_per_class)
    share = sizes / classes_held

    def compute_counts(scale: float) -> Tensor:
        return held * (share * scale + 1e-9).floor().maximum(min_per_class).long()[:, None]

    demand = (held * share[:, None]).sum(dim=0)  # (classes,)
    low, high = 0.0, float(((supply + held.sum(dim=0)) / demand)[demand > 0].min())
    for _ in range(50):  # bisect for the largest scale that the supply of each class allows
        middle = (low + high) / 2
        fits = bool((compute_counts(middle).sum(dim=0) <= supply).all())
        low, high = (middle, high) if fits else (low, middle)
    return compute_counts(low)


def _check_supply(supply: Tensor, held: Tensor, min_per_class: Tensor) -> None:
    """Raise an error if a class has too few samples for the clients that hold it."""
    required = (held * min_per_class[:, None]).sum(dim=0)
    scarcest = int((required - supply).argmax())
    if required[scarcest] > supply[scarcest]:
        raise CadisError(
            f"{len(held)} clients are too many: class {scarcest} has {int(supply[scarcest])} "
            f"samples, but the {int(held[:, scarcest].sum())} clients that hold it need "
            f"{int(required[scarcest])}; ask for fewer clients, or lower --min-samples."
        )
