"""What is set apart for testing, where data come without a test set."""

from collections import Counter
from collections.abc import Sequence

import torch

from cadis.rng import generator_for

_TEST_SHARE = 0.1


def held_out(labels: Sequence[int], owners: Sequence[str | None]) -> set[int]:
    """Which examples to set apart, by their labels and owners; a tenth of each class.

    At least one of a class, unless it is its only one; and no owner loses its last example.
    """
    generator = generator_for(0, "hold out")
    left = Counter(owners)
    held: set[int] = set()
    for label in dict.fromkeys(labels):
        members = [n for n, other in enumerate(labels) if other == label]
        wanted = max(1, round(_TEST_SHARE * len(members))) if len(members) > 1 else 0
        for at in torch.randperm(len(members), generator=generator).tolist():
            owner = owners[members[at]]
            if wanted and left[owner] > 1:
                wanted -= 1
                left[owner] -= 1
                held.add(members[at])
    return held
