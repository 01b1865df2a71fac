"""Tests of held-out data: a tenth of a dataset, and a share of each client's samples."""

from collections import Counter
from fractions import Fraction

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cadis.data.holdout import hold_out, hold_out_tenth_per_class
from cadis.rng import derive_generator


def count_held_out(counts: list[int], share: float, seed: int = 0) -> Counter[int]:
    """Return the number of test samples of each class, for a client with ``counts`` samples."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=derive_generator(seed, "shuffle"))]
    is_test = hold_out(labels, share, derive_generator(seed, "client-test", 3))
    return Counter(labels[is_test].tolist())


def test_test_samples_follow_largest_remainders() -> None:
    # 0.2 * 16 = 3.2, so 3: quotas 0.2 * (10, 4, 2) = 2, 0.8, 0.4; the third sample goes to 0.8
    assert count_held_out([10, 4, 2], 0.2) == {0: 2, 1: 1}
    # 0.25 * 22 = 5.5, which rounds to the even 6: quotas 2.5, 2.25, 0.75; one each to 0.75, 0.5
    assert count_held_out([10, 9, 3], 0.25) == {0: 3, 1: 2, 2: 1}
    for share in (0.1, 0.2, 0.5):
        shares = [round(share * count) for count in (100, 50, 20)]
        assert count_held_out([100, 50, 20], share) == dict(enumerate(shares))


def test_each_class_keeps_a_training_sample() -> None:
    # 0.9 * 9 = 8.1, so 8: 1.8, 2.7 and 3.6, but at most 1, 2 and 3
    assert count_held_out([2, 3, 4], 0.9) == {0: 1, 1: 2, 2: 3}
    # the classes of 5 hold out 4 of 4.5; 27 - 3 * 4 remain for the class of 15, at most 14
    assert count_held_out([5, 5, 5, 15], 0.9) == {0: 4, 1: 4, 2: 4, 3: 14}


def test_clients_with_one_or_two_samples() -> None:
    assert count_held_out([1], 0.5) == {}
    assert count_held_out([2], 0.01) == {0: 1}  # at least one, so that the client is tested
    classes = {tuple(count_held_out([1, 1], 0.9, seed)) for seed in range(20)}
    assert classes == {(0,), (1,)}  # one of the two at random
    assert count_held_out([7, 3], 0.0) == {}


def test_draw_depends_only_on_the_generator() -> None:
    labels = torch.arange(60) % 3
    first, again = (hold_out(labels, 0.3, derive_generator(1, "client-test", 0)) for _ in range(2))
    assert torch.equal(first, again)
    for path in ((2, "client-test", 0), (1, "client-test", 1)):
        assert not torch.equal(first, hold_out(labels, 0.3, derive_generator(*path)))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
)
def test_limits_and_quotas_hold_for_any_share(counts: list[int], share: float) -> None:
    held_out, total = count_held_out(counts, share), sum(counts)
    assert held_out.total() >= (total > 1)
    assert held_out.total() < total
    for label, count in enumerate(counts):
        assert held_out[label] <= max(count - 1, 1)
    if all(count > 1 and Fraction(share) * count <= count - 1 for count in counts):
        exact = Fraction(share) * total
        assert abs(held_out.total() - exact) <= Fraction(501, 1000) or held_out.total() == 1
        for label, count in enumerate(counts):
            assert abs(held_out[label] - Fraction(share) * count) < 1 + 1e-6


@given(groups=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=60))
def test_a_tenth_of_each_class_is_held_out(groups: list[tuple[int, int]]) -> None:
    labels, clients = [label for label, _ in groups], [f"client {client}" for _, client in groups]
    is_test = hold_out_tenth_per_class(labels, clients)
    train, test = ([groups[n] for n in side.nonzero()[:, 0]] for side in (~is_test, is_test))
    assert {client for _, client in train} == {client for _, client in groups}  # all keep some
    class_counts, test_counts = Counter(labels), Counter(label for label, _ in test)
    are_large = min(Counter(clients).values()) > len(set(class_counts))
    for label, count in class_counts.items():
        expected = max(1, round(count / 10)) if count > 1 else 0
        assert test_counts[label] == expected if are_large else test_counts[label] <= expected
    assert torch.equal(hold_out_tenth_per_class(labels, clients), is_test)
