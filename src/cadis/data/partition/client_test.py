"""A client's samples in two: those that it trains on, and those that it is tested on."""

import torch
from torch import Tensor


def held_out(labels: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Which of a client's samples are set apart to test on, drawn class by class.

    The share is that of the client's samples, rounded, and at least one of them. It is dealt to
    its classes by their largest remainders, equal ones by lot; which samples of a class these are
    is drawn. Something is left to train on: of a class that the client has several samples of, at
    least one, and in any case one sample of the client's. So a client with a single sample trains
    on it, and is not tested.

    Args:
        labels: the classes of the client's samples, (n,).
        share: what part of them is held out, at least 0 and less than 1.
        generator: the client's own.

    Returns:
        True for those that are held out, (n,).
    """
    apart = torch.zeros(len(labels), dtype=torch.bool)
    classes, counts = labels.unique(return_counts=True)
    numbers = _dealt(counts.tolist(), share, generator) if share else [0] * len(classes)
    for label, number in zip(classes, numbers, strict=True):
        members = (labels == label).nonzero()[:, 0]
        apart[members[torch.randperm(len(members), generator=generator)[:number]]] = True
    return apart


def _dealt(counts: list[int], share: float, generator: torch.Generator) -> list[int]:
    """How many samples of each class are held out, of so many that a client has."""
    most = [max(count - 1, 1) for count in counts]
    wanted = max(1, round(share * sum(counts)))
    wanted = min(wanted, sum(most), sum(counts) - 1)
    quotas = [share * count for count in counts]
    numbers = [min(int(quota), limit) for quota, limit in zip(quotas, most, strict=True)]
    lots = torch.randperm(len(counts), generator=generator).tolist()
    while sum(numbers) < wanted:
        open_to = [place for place in lots if numbers[place] < most[place]]
        # Equal remainders may differ by rounding; of those, the first lot wins.
        place = max(open_to, key=lambda place: round(quotas[place] - numbers[place], 9))
        numbers[place] += 1
    return numbers
