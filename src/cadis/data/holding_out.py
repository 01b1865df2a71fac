"""Setting samples apart for testing: of a dataset without a test set, and of each client's own."""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from cadis.rng import generator_for

_TEST_SHARE = 0.1


def held_out_tenth(labels: Sequence[int], owners: Sequence[str | None]) -> Tensor:
    """Return which examples to set apart, a tenth of each class, (n,), bool.

    At least one of a class, unless it is its only one; and no owner loses its last example.
    """
    generator = generator_for(0, "hold out")
    left = Counter(owners)
    apart = torch.zeros(len(labels), dtype=torch.bool)
    for label in dict.fromkeys(labels):
        members = [n for n, other in enumerate(labels) if other == label]
        wanted = max(1, round(_TEST_SHARE * len(members))) if len(members) > 1 else 0
        for at in torch.randperm(len(members), generator=generator).tolist():
            owner = owners[members[at]]
            if wanted and left[owner] > 1:
                wanted -= 1
                left[owner] -= 1
                apart[members[at]] = True
    return apart


def held_out(labels: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Return which of a client's samples to test on, drawn class by class, (n,), bool.

    The share is that of the client's samples, rounded, and at least one of them. It is dealt to
    its classes by their largest remainders, equal ones by lot; which samples of a class these are
    is drawn. Something is left to train on: of a class that the client has several samples of, at
    least one, and in any case one sample of the client's. So a client with a single sample trains
    on it, and is not tested.

    Args:
        labels: the classes of the client's samples, (n,).
        share: what part of them is held out, at least 0 and less than 1.
        generator: the client's own.
    """
    apart = torch.zeros(len(labels), dtype=torch.bool)
    classes, counts = labels.unique(return_counts=True)
    numbers = _held_by_class(counts.tolist(), share, generator) if share else [0] * len(classes)
    for label, number in zip(classes, numbers, strict=True):
        members = (labels == label).nonzero()[:, 0]
        apart[members[torch.randperm(len(members), generator=generator)[:number]]] = True
    return apart


def _held_by_class(counts: list[int], share: float, generator: torch.Generator) -> list[int]:
    """Return how many samples of each class are held out, of so many that a client has."""
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
