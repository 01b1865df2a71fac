"""Samples set apart for testing: a tenth of a dataset, and a share of each client's."""

from collections import Counter
from fractions import Fraction

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cadis.data.holding_out import held_out, held_out_tenth
from cadis.rng import generator_for


def numbers(counts: list[int], share: float, seed: int = 0) -> Counter[int]:
    """How many of each class are held out, of a client with so many of each."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=generator_for(seed, "shuffle"))]
    apart = held_out(labels, share, generator_for(seed, "client-test", 3))
    return Counter(labels[apart].tolist())


def test_largest_remainders_by_hand() -> None:
    # 0.2 * 16 = 3.2, so 3: quotas 0.2 * (10, 4, 2) = 2, 0.8, 0.4; the last one goes to 0.8
    assert numbers([10, 4, 2], 0.2) == {0: 2, 1: 1}
    # 0.25 * 22 = 5.5, which rounds to the even 6: quotas 2.5, 2.25, 0.75; one each to 0.75, 0.5
    assert numbers([10, 9, 3], 0.25) == {0: 3, 1: 2, 2: 1}
    for share in (0.1, 0.2, 0.5):
        shares = [round(share * count) for count in (100, 50, 20)]
        assert numbers([100, 50, 20], share) == dict(enumerate(shares))


def test_something_of_a_class_is_left_to_train_on() -> None:
    # 0.9 * 9 = 8.1, so 8: 1.8, 2.7 and 3.6, but at most 1, 2 and 3
    assert numbers([2, 3, 4], 0.9) == {0: 1, 1: 2, 2: 3}
    # the fives hold out 4 of 4.5 and no more; 27 - 3 * 4 is left to the class of 15, at most 14
    assert numbers([5, 5, 5, 15], 0.9) == {0: 4, 1: 4, 2: 4, 3: 14}


def test_clients_with_hardly_any_samples() -> None:
    assert numbers([1], 0.5) == {}
    assert numbers([2], 0.01) == {0: 1}  # at least one, so that the client is tested
    found = {tuple(numbers([1, 1], 0.9, seed)) for seed in range(20)}
    assert found == {(0,), (1,)}  # one of the two, by lot
    assert numbers([7, 3], 0.0) == {}


def test_the_draw_is_the_generators() -> None:
    labels = torch.arange(60) % 3
    first, again = (held_out(labels, 0.3, generator_for(1, "client-test", 0)) for _ in range(2))
    assert torch.equal(first, again)
    for path in ((2, "client-test", 0), (1, "client-test", 1)):
        assert not torch.equal(first, held_out(labels, 0.3, generator_for(*path)))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
)
def test_every_share_of_any_counts(counts: list[int], share: float) -> None:
    found, total = numbers(counts, share), sum(counts)
    assert found.total() >= (total > 1)
    assert found.total() < total
    for label, count in enumerate(counts):
        assert found[label] <= max(count - 1, 1)
    if all(count > 1 and Fraction(share) * count <= count - 1 for count in counts):
        exact = Fraction(share) * total
        assert abs(found.total() - exact) <= Fraction(501, 1000) or found.total() == 1
        for label, count in enumerate(counts):
            assert abs(found[label] - Fraction(share) * count) < 1 + 1e-6


@given(groups=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=60))
def test_a_tenth_of_each_class_is_held_out(groups: list[tuple[int, int]]) -> None:
    labels, clients = [label for label, _ in groups], [f"client {client}" for _, client in groups]
    apart = held_out_tenth(labels, clients)
    train, test = ([groups[n] for n in side.nonzero()[:, 0]] for side in (~apart, apart))
    assert {client for _, client in train} == {client for _, client in groups}  # all keep some
    of_class, held = Counter(labels), Counter(label for label, _ in test)
    rich = min(Counter(clients).values()) > len(set(of_class))
    for label, count in of_class.items():
        wanted = max(1, round(count / 10)) if count > 1 else 0
        assert held[label] == wanted if rich else held[label] <= wanted
    assert torch.equal(held_out_tenth(labels, clients), apart)
