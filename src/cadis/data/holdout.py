"""Holding out samples for testing: of a dataset without a test set, or of each client."""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from cadis.rng import derive_generator

_TEST_SHARE = 0.1


def hold_out_tenth_per_class(labels: Sequence[int], clients: Sequence[str | None]) -> Tensor:
    """Draw a tenth of each class for testing; the same data always give the same samples.

    At least one sample of a class is held out, unless the class has only one sample. A client
    keeps at least one sample for training.

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

    The number of test samples is the share times the number of samples, rounded. It is at least
    one, unless the share is 0. It is split among the classes with the largest remainder method;
    ties are broken at random. A class with several samples keeps at least one for training. A
    client with a single sample trains on it and is not tested.

    Args:
        labels: labels of the client's samples, (n,).
        share: fraction of the samples to hold out, at least 0 and less than 1.
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
    test_counts = [0] * len(classes)
    if share:
        test_counts = _compute_test_counts(counts.tolist(), share, generator)
    for label, test_count in zip(classes, test_counts, strict=True):
        members = (labels == label).nonzero()[:, 0]
        is_test[members[torch.randperm(len(members), generator=generator)[:test_count]]] = True
    return is_test


def _compute_test_counts(counts: list[int], share: float, generator: torch.Generator) -> list[int]:
    """Return the number of test samples of each class.

    Args:
        counts: number of samples of each class.
        share: fraction of the samples to hold out.
        generator: source of the random order that breaks ties.
    """
    limits = [max(count - 1, 1) for count in counts]
    wanted = max(1, round(share * sum(counts)))
    wanted = min(wanted, sum(limits), sum(counts) - 1)
    quotas = [share * count for count in counts]
    test_counts = [min(int(quota), limit) for quota, limit in zip(quotas, limits, strict=True)]
    order = torch.randperm(len(counts), generator=generator).tolist()
    while sum(test_counts) < wanted:
        available = [index for index in order if test_counts[index] < limits[index]]
        # Equal remainders may differ by rounding errors, so round them; max() takes the first one.
        index = max(available, key=lambda index: round(quotas[index] - test_counts[index], 9))
        test_counts[index] += 1
    return test_counts
