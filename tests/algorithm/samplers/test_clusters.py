"""Participants drawn evenly from the clusters found."""

from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cadis.algorithm import Algorithm
from cadis.algorithm.methods import CADIS, CADISPaper, FedAvg
from cadis.algorithm.samplers import Clusters, SamplerRound
from cadis.errors import CadisError
from cadis.rng import generator_for
from cadis.types import ClientId


def chosen(
    labels: Sequence[int], wanted: int, seed: int = 0, number: int = 50, **parameters: float
) -> list[int]:
    """The places of those who take part, of clients in these clusters; -1 is never seen."""

    def cluster_labels(clients: Sequence[ClientId]) -> Tensor:
        return torch.tensor([labels[int(client)] for client in clients])

    generator = generator_for(seed, "participants", number)
    known = SamplerRound(number, range(len(labels)), wanted, generator, cluster_labels)
    return [int(client) for client in Clusters(**parameters).choose(known, {})]


def test_every_cluster_has_the_same_number_of_seats() -> None:
    labels = [0] * 30 + [1] * 30 + [2] * 20 + [3] * 10 + [4] * 10
    for seed in range(20):
        seats = Counter(labels[place] for place in chosen(labels, 10, seed))
        assert seats == {0: 2, 1: 2, 2: 2, 3: 2, 4: 2}


def test_what_is_left_over_goes_to_clusters_by_chance() -> None:
    labels, extra = [0] * 9 + [1] * 9 + [2] * 9, Counter[int]()
    for seed in range(60):
        seats = Counter(labels[place] for place in chosen(labels, 4, seed))
        assert sorted(seats.values()) == [1, 1, 2]
        extra[max(seats, key=lambda label: seats[label])] += 1
    assert all(extra[label] >= 10 for label in range(3))


def test_of_more_clusters_than_seats_each_is_as_likely() -> None:
    labels = [0] * 60 + list(range(1, 41))
    seats = Counter(labels[place] for seed in range(410) for place in chosen(labels, 10, seed))
    assert max(seats.values()) < 140  # 100 each are expected
    assert min(seats.values()) > 60


def test_a_cluster_with_too_few_gives_its_seats_to_others() -> None:
    found = chosen([0] + [1] * 20, 6)
    assert Counter(0 if place == 0 else 1 for place in found) == {0: 1, 1: 5}


def test_within_a_cluster_everybody_is_as_likely() -> None:
    labels = [0] * 10 + [1] * 3
    seats = Counter(place for seed in range(500) for place in chosen(labels, 2, seed))
    assert all(30 <= seats[place] <= 75 for place in range(10))  # 50 each are expected


@pytest.mark.parametrize(("newcomers", "most"), [(0.5, 5), (0.2, 2), (1.0, 10)])
def test_those_never_seen_have_a_part_of_the_seats(newcomers: float, most: int) -> None:
    labels = [-1] * 90 + [0] * 5 + [1] * 5
    seats = [
        sum(place < 90 for place in chosen(labels, 10, seed, newcomers=newcomers))
        for seed in range(40)
    ]
    assert max(seats) == most or newcomers == 1.0
    assert all(number <= most for number in seats)


def test_one_that_never_answers_is_asked_no_more_often_than_by_chance() -> None:
    labels = [-1] + [0] * 49 + [1] * 50
    asked = sum(0 in chosen(labels, 10, seed) for seed in range(400))
    assert 20 <= asked <= 65  # 40 are expected


def test_where_the_others_are_too_few_or_none_all_seats_are_taken_all_the_same() -> None:
    assert len(chosen([-1] * 12, 5)) == 5
    assert {place for seed in range(40) for place in chosen([-1] * 12, 5, seed)} == set(range(12))
    assert len(chosen([-1] * 9 + [0], 8, newcomers=0.0)) == 8
    assert sorted(chosen([0, 1, -1], 3)) == [0, 1, 2]


@given(st.integers(0, 10**6), st.lists(st.integers(-1, 5), min_size=1, max_size=40), st.data())
def test_each_once_in_order_and_the_same_again(
    seed: int, labels: list[int], data: st.DataObject
) -> None:
    wanted = data.draw(st.integers(1, len(labels)))
    found = chosen(labels, wanted, seed)
    assert found == sorted(set(found))
    assert len(found) == wanted
    assert found == chosen(labels, wanted, seed)


def test_it_is_refused_with_a_method_that_finds_no_clusters() -> None:
    for method in (FedAvg(), CADISPaper()):
        with pytest.raises(CadisError, match="'clusters' draws from the clusters of all clients"):
            Algorithm(method, sampler=Clusters())
    assert Algorithm(CADIS(), sampler=Clusters()).sampler == Clusters()
    Algorithm(CADISPaper(scope="federation"), sampler=Clusters())
