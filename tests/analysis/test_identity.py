"""Clusters under numbers that they keep, and clients in the order that people expect."""

import numpy as np
import pytest

from cadis._io import natural
from cadis.analysis import steady
from cadis.types import ClientId

UNKNOWN: dict[ClientId, int | None] = dict.fromkeys("abcdef")
ROUNDS: list[dict[ClientId, int]] = [
    {"a": 0, "b": 0, "c": 0, "d": 1},
    {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1},
    {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1, "f": 2},
]


def test_a_cluster_keeps_its_number_while_it_keeps_its_clients() -> None:
    found = steady(ROUNDS, UNKNOWN)
    first, second, third = found[-1]["a"], found[-1]["c"], found[-1]["f"]
    assert len({first, second, third}) == 3
    assert found[1] == {"a": first, "b": first, "c": second, "d": second, "e": second}
    assert found[0] == {"a": first, "b": first, "c": first, "d": second}


@pytest.mark.parametrize("seed", range(20))
def test_what_clusters_are_called_in_a_round_does_not_matter(seed: int) -> None:
    random = np.random.default_rng(seed)
    permuted = [
        {client: int(names[label]) for client, label in labels.items()}
        for labels in ROUNDS
        for names in [random.permutation(7)]
    ]
    assert steady(permuted, UNKNOWN) == steady(ROUNDS, UNKNOWN)


def test_at_the_end_a_cluster_has_the_number_of_the_true_one_that_it_is() -> None:
    truth: dict[ClientId, int | None] = {"a": 4, "b": 4, "c": 1, "d": 1, "e": 1, "f": 1}
    found = steady(ROUNDS, truth)
    assert found[-1] == {"a": 4, "b": 4, "c": 1, "d": 1, "e": 1, "f": 5}  # there is no second 1
    assert found[0] == {"a": 4, "b": 4, "c": 4, "d": 1}


def test_there_are_as_many_clusters_as_were_found() -> None:
    truth: dict[ClientId, int | None] = dict.fromkeys("abcdef", 0)
    for before, after in zip(ROUNDS, steady(ROUNDS, truth), strict=True):
        assert before.keys() == after.keys()
        assert len(set(after.values())) == len(set(before.values()))


def test_two_comes_before_ten() -> None:
    assert sorted(["ward-10", "ward-2", "10", "9", "b", "a"], key=natural) == [
        "9", "10", "a", "b", "ward-2", "ward-10",
    ]  # fmt: skip
    assert sorted([10, 9, 2], key=natural) == [2, 9, 10]
