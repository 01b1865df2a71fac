"""Holding out test samples of datasets without a test set, and of the data of each client."""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from cadis.rng import derive_generator

_TEST_SHARE = 0.1


def hold_out_tenth_per_class(labels: Sequence[int], clients: Sequence[str | None]) -> Tensor:
    """Draw a tenth of each class for testing, always the same for the same data.

    At least one sample of a class is held out, unless it has only one. A client keeps at least
    one sample.

    Args:
        labels: label of each sample.
        clients: client of each sample; None for samples without a client.

    Returns:
        Mask of the test samples, (n,), bool.
    """
    generator = derive_generator(0, "hold out")
    remaining = Counter(clients)
    label_tensor = torch.tensor(labels)
    is_test = torch.zeros(len(labels), dtype=torch.bool)
    for label in dict.fromkeys(labels):
        members = (label_tensor == label).nonzero()[:, 0]
        wanted = max(1, round(_TEST_SHARE * len(members))) if len(members) > 1 else 0
        for index in members[torch.randperm(len(members), generator=generator)].tolist():
            if not wanted:
                break
            if remaining[clients[index]] > 1:
                wanted -= 1
                remaining[clients[index]] -= 1
                is_test[index] = True
    return is_test


def hold_out(labels: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Draw the test samples of one client, stratified by class.

    The number of test samples is the share of the client's samples, rounded, and at least one.
    It is split among the classes by the largest remainder method; ties are broken at random. A
    class with several samples keeps at least one for training. A client with a single sample
    trains on it and is not tested.

    Args:
        labels: labels of the client's samples, (n,).
        share: share of the samples that is held out, at least 0 and less than 1.
        generator: random generator of this client.

    Returns:
        Mask of the test samples, (n,), bool.

    Example:
        >>> import torch
        >>> from cadis.data.partition import hold_out
        >>> labels = torch.tensor([0, 0, 0, 0, 1, 1])
        >>> is_test = hold_out(labels, 0.5, torch.Generator().manual_seed(0))
        >>> labels[is_test].tolist()
        [0, 0, 1]
    """
    is_test = torch.zeros(len(labels), dtype=torch.bool)
    classes, counts = labels.unique(return_counts=True)
    numbers = [0] * len(classes)
    if share:
        numbers = _compute_test_counts(counts.tolist(), share, generator)
    for label, number in zip(classes, numbers, strict=True):
        members = (labels == label).nonzero()[:, 0]
        is_test[members[torch.randperm(len(members), generator=generator)[:number]]] = True
    return is_test


def _compute_test_counts(counts: list[int], share: float, generator: torch.Generator) -> list[int]:
    """Return the number of test samples of each class.

    Args:
        counts: number of samples of each class.
        share: share of the samples that is held out.
        generator: source of the random order that breaks ties.
    """
    limits = [max(count - 1, 1) for count in counts]
    wanted = max(1, round(share * sum(counts)))
    wanted = min(wanted, sum(limits), sum(counts) - 1)
    quotas = [share * count for count in counts]
    numbers = [min(int(quota), limit) for quota, limit in zip(quotas, limits, strict=True)]
    order = torch.randperm(len(counts), generator=generator).tolist()
    while sum(numbers) < wanted:
        available = [index for index in order if numbers[index] < limits[index]]
        # Rounding hides numerical differences of equal remainders; max() takes the first of them.
        index = max(available, key=lambda index: round(quotas[index] - numbers[index], 9))
        numbers[index] += 1
    return numbers
