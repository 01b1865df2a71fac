"""Sampling of equally many participants from each cluster."""

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
from cadis.rng import derive_generator
from cadis.types import ClientId


def choose(
    labels: Sequence[int],
    num_participants: int,
    seed: int = 0,
    number: int = 50,
    **parameters: float,
) -> list[int]:
    """Return the participants among clients in these clusters; -1 is an unknown cluster."""

    def cluster_labels(clients: Sequence[ClientId]) -> Tensor:
        return torch.tensor([labels[int(client)] for client in clients])

    generator = derive_generator(seed, "participants", number)
    server_round = SamplerRound(
        number, range(len(labels)), num_participants, generator, cluster_labels
    )
    return [int(client) for client in Clusters(**parameters).choose(server_round, {})]


def test_each_cluster_has_equally_many_participants() -> None:
    labels = [0] * 30 + [1] * 30 + [2] * 20 + [3] * 10 + [4] * 10
    for seed in range(20):
        seats = Counter(labels[client] for client in choose(labels, 10, seed))
        assert seats == {0: 2, 1: 2, 2: 2, 3: 2, 4: 2}


def test_remaining_seats_go_to_random_clusters() -> None:
    labels, extra = [0] * 9 + [1] * 9 + [2] * 9, Counter[int]()
    for seed in range(60):
        seats = Counter(labels[client] for client in choose(labels, 4, seed))
        assert sorted(seats.values()) == [1, 1, 2]
        extra[max(seats, key=lambda label: seats[label])] += 1
    assert all(extra[label] >= 10 for label in range(3))


def test_with_more_clusters_than_participants_all_clusters_are_equally_likely() -> None:
    labels = [0] * 60 + list(range(1, 41))
    seats = Counter(labels[client] for seed in range(410) for client in choose(labels, 10, seed))
    assert max(seats.values()) < 140  # 100 each are expected
    assert min(seats.values()) > 60


def test_seats_of_a_small_cluster_go_to_others() -> None:
    participants = choose([0] + [1] * 20, 6)
    assert Counter(0 if client == 0 else 1 for client in participants) == {0: 1, 1: 5}


def test_clients_of_a_cluster_are_equally_likely() -> None:
    labels = [0] * 10 + [1] * 3
    seats = Counter(client for seed in range(500) for client in choose(labels, 2, seed))
    assert all(30 <= seats[client] <= 75 for client in range(10))  # 50 each are expected


@pytest.mark.parametrize(("newcomers", "limit"), [(0.5, 5), (0.2, 2), (1.0, 10)])
def test_newcomers_are_limited(newcomers: float, limit: int) -> None:
    labels = [-1] * 90 + [0] * 5 + [1] * 5
    seats = [
        sum(client < 90 for client in choose(labels, 10, seed, newcomers=newcomers))
        for seed in range(40)
    ]
    assert max(seats) == limit or newcomers == 1.0
    assert all(number <= limit for number in seats)


def test_client_that_never_replies_is_chosen_as_often_as_by_uniform_sampling() -> None:
    labels = [-1] + [0] * 49 + [1] * 50
    count = sum(0 in choose(labels, 10, seed) for seed in range(400))
    assert 20 <= count <= 65  # 40 are expected


def test_all_seats_are_filled_without_known_clusters() -> None:
    assert len(choose([-1] * 12, 5)) == 5
    assert {client for seed in range(40) for client in choose([-1] * 12, 5, seed)} == set(range(12))
    assert len(choose([-1] * 9 + [0], 8, newcomers=0.0)) == 8
    assert sorted(choose([0, 1, -1], 3)) == [0, 1, 2]


@given(st.integers(0, 10**6), st.lists(st.integers(-1, 5), min_size=1, max_size=40), st.data())
def test_participants_are_unique_in_order_and_reproducible(
    seed: int, labels: list[int], data: st.DataObject
) -> None:
    num_participants = data.draw(st.integers(1, len(labels)))
    participants = choose(labels, num_participants, seed)
    assert participants == sorted(set(participants))
    assert len(participants) == num_participants
    assert participants == choose(labels, num_participants, seed)


def test_method_without_clusters_is_rejected() -> None:
    for method in (FedAvg(), CADISPaper()):
        with pytest.raises(CadisError, match="'clusters' needs the clusters of clients"):
            Algorithm(method, sampler=Clusters())
    assert Algorithm(CADIS(), sampler=Clusters()).sampler == Clusters()
    Algorithm(CADISPaper(scope="federation"), sampler=Clusters())
