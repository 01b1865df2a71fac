"""What the ways of dealing out a dataset have in common."""

import torch
from torch import Tensor

from cadis.errors import CadisError


def deal_out(labels: Tensor, counts: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
    """So many samples of each class to each client, at random.

    Args:
        labels: of all examples, (n,).
        counts: samples by client and class, (clients, classes); at most as many as there are.
        generator: deals.
    """
    order = torch.randperm(len(labels), generator=generator)
    by_class = order[labels[order].argsort(stable=True)]  # shuffled within each class
    starts = torch.bincount(labels, minlength=counts.shape[1]).cumsum(0)
    dealt, owners = [], []
    for label, column in enumerate(counts.T):
        start = int(starts[label - 1]) if label else 0
        dealt.append(by_class[start : start + int(column.sum())])
        owners.append(torch.arange(len(counts)).repeat_interleave(column))
    by_client = torch.cat(owners).argsort(stable=True)
    shares: tuple[Tensor, ...] = torch.cat(dealt)[by_client].split(counts.sum(dim=1).tolist())
    return shares


def apportion(totals: Tensor, weights: Tensor) -> Tensor:
    """Whole numbers in proportion to the weights, by largest remainders.

    Args:
        totals: what the numbers of each row add up to, (rows,).
        weights: not negative, not all zero where there is something to give, (rows, columns).
    """
    weights = weights.double()
    exact = totals[:, None] * weights / weights.sum(dim=1, keepdim=True).clamp(min=1e-300)
    whole = exact.floor()
    missing = totals - whole.sum(dim=1).long()
    rank = (whole - exact).argsort(dim=1, stable=True).argsort(dim=1, stable=True)
    return whole.long() + (rank < missing[:, None])


def lift(counts: Tensor, minimum: int, generator: torch.Generator) -> Tensor:
    """Give those who have too few samples some of the others', as these can spare them.

    Args:
        counts: samples by client and class, (clients, classes).
        minimum: the fewest samples a client may have.
        generator: deals what was taken.
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
    """All samples, each class in the clients' shares of it.

    Args:
        labels: of all examples, (n,).
        shares: relative, (classes, clients).
        minimum: the fewest samples a client may have; who would have fewer is given some.
        generator: deals.
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
    """As many samples of each class that a client holds, in proportion to its size.

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
