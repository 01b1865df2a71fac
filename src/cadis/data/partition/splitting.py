"""What a partition is, what a partitioner does, and what all partitioners have in common."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from cadis._io import short_repr
from cadis.errors import CadisError
from cadis.types import ClientId


@dataclass(frozen=True, repr=False)
class Partition:
    """Which client owns which examples.

    Attributes:
        indices: each client's examples.
        true_clusters: the true cluster of each client, (n,); None if there are none.
        client_ids: names of the clients; by default their positions.
    """

    indices: tuple[Tensor, ...]
    true_clusters: Tensor | None = None
    client_ids: tuple[ClientId, ...] = ()

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if not self.client_ids:
            object.__setattr__(self, "client_ids", tuple(range(len(self.indices))))

    def counts(self, labels: Tensor, num_classes: int) -> Tensor:
        """Return how many samples of each class each client has, (clients, classes)."""
        return torch.stack(
            [torch.bincount(labels[owned], minlength=num_classes) for owned in self.indices]
        )


class Partitioner(Protocol):
    """A way of dealing out a dataset: a frozen dataclass of its parameters."""

    name: ClassVar[str]

    def deal(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """Deal out examples; none belongs to two clients.

        Args:
            labels: of all examples, (n,).
            num_clients: how many clients there are to be.
            minimum: the fewest samples a client may have.
            generator: deals.
        """


def deal_out(labels: Tensor, counts: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Deal samples out at random, as many as ``counts`` says, (clients, classes)."""
    order = torch.randperm(len(labels), generator=generator)
    by_class = order[labels[order].argsort(stable=True)]  # shuffled within each class
    supply = torch.bincount(labels, minlength=counts.shape[1]).tolist()
    dealt, owners = [], []
    for samples, column in zip(by_class.split(supply), counts.T, strict=True):
        dealt.append(samples[: int(column.sum())])
        owners.append(torch.arange(len(counts)).repeat_interleave(column))
    by_client = torch.cat(owners).argsort(stable=True)
    shares: tuple[Tensor, ...] = torch.cat(dealt)[by_client].split(counts.sum(dim=1).tolist())
    return shares


def apportion(totals: Tensor, weights: Tensor) -> Tensor:
    """Split each total into whole numbers by the weights of its row, by largest remainders.

    Totals are (rows,) and weights (rows, columns): not negative, nor all 0 where a total is not.
    """
    weights = weights.double()
    exact = totals[:, None] * weights / weights.sum(dim=1, keepdim=True).clamp(min=1e-300)
    whole = exact.floor()
    missing = totals - whole.sum(dim=1).long()
    rank = (whole - exact).argsort(dim=1, stable=True).argsort(dim=1, stable=True)
    return whole.long() + (rank < missing[:, None])


def lift(counts: Tensor, minimum: int, generator: torch.Generator) -> Tensor:
    """Give clients below the minimum some of the others' samples, as these can spare them.

    Counts are samples by client and class, (clients, classes), before and after.
    """
    sizes = counts.sum(dim=1)
    lacking = (minimum - sizes).clamp(min=0)
    if not lacking.any():
        return counts
    given = apportion(lacking.sum()[None], (sizes - minimum).clamp(min=0)[None])[0]
    taken = apportion(given, counts)  # (clients, classes)
    pool = torch.arange(counts.shape[1]).repeat_interleave(taken.sum(dim=0))
    pool = pool[torch.randperm(len(pool), generator=generator)]
    receivers = torch.arange(len(counts)).repeat_interleave(lacking)
    counts = counts - taken
    return counts.index_put((receivers, pool), torch.ones_like(pool), accumulate=True)


def deal_by_shares(
    labels: Tensor, shares: Tensor, minimum: int, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Deal out all samples, each class in relative shares, (classes, clients).

    Clients that would have fewer than the minimum are given some of the others' samples.
    """
    counts = apportion(torch.bincount(labels), shares).T  # (clients, classes)
    return deal_out(labels, lift(counts, minimum, generator), generator)


def check_enough(num_samples: int, num_clients: int, minimum: int) -> None:
    """Refuse more clients than there are samples for."""
    if num_clients * minimum > num_samples:
        raise CadisError(
            f"{num_clients} clients of at least {minimum} samples are too many for {num_samples} "
            "samples; ask for fewer clients, or fewer samples of each by --min-samples."
        )


def uneven_sizes(num_clients: int, deviation: float, generator: torch.Generator) -> Tensor:
    """Relative sizes: normal around 1, within half and one and a half, (clients,)."""
    noise = torch.randn(num_clients, generator=generator, dtype=torch.float64)
    return (1 + deviation * noise).clamp(0.5, 1.5)


def equal_counts(labels: Tensor, held: Tensor, sizes: Tensor, minimum: int) -> Tensor:
    """Give each client equally many samples of each class that it holds, by its relative size.

    Args:
        labels: of all examples, (n,).
        held: which classes each client holds, (clients, classes), bool.
        sizes: relative number of samples of the clients, (clients,).
        minimum: the fewest samples a client may have.

    Returns:
        Samples by client and class, as many as the scarcest class allows, at least one of each
        class held and the minimum together.
    """
    supply, classes_held = torch.bincount(labels), held.sum(dim=1)
    fewest = (minimum / classes_held).ceil().clamp(min=1)  # of each class, (clients,)
    _check_supply(supply, held, fewest)
    share = sizes / classes_held

    def counts(scale: float) -> Tensor:
        return held * (share * scale + 1e-9).floor().maximum(fewest).long()[:, None]

    demand = (held * share[:, None]).sum(dim=0)  # (classes,)
    low, high = 0.0, float(((supply + held.sum(dim=0)) / demand)[demand > 0].min())
    for _ in range(50):  # the largest scale that every class can supply
        middle = (low + high) / 2
        fits = bool((counts(middle).sum(dim=0) <= supply).all())
        low, high = (middle, high) if fits else (low, middle)
    return counts(low)


def _check_supply(supply: Tensor, held: Tensor, fewest: Tensor) -> None:
    """Refuse a class that cannot give all who hold it the fewest samples."""
    wanted = (held * fewest[:, None]).sum(dim=0)
    scarcest = int((wanted - supply).argmax())
    if wanted[scarcest] > supply[scarcest]:
        raise CadisError(
            f"{len(held)} clients are too many: class {scarcest} has {int(supply[scarcest])} "
            f"samples, but {int(held[:, scarcest].sum())} clients are to hold it, which takes "
            f"{int(wanted[scarcest])}; ask for fewer clients, or fewer samples of each."
        )
