"""FedCluster: the clusters take part in turn."""

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cadis.algorithm.samplers import FedCluster, SamplerFeedback, SamplerRound, Uniform
from cadis.rng import derive_generator
from cadis.types import ClientId, ClientUpdate, Message, TensorState, compute_client_keys

Clusters = Callable[[Sequence[ClientId]], Tensor]


def make_cluster_labels(labels: Sequence[int]) -> Clusters:
    return lambda clients: torch.tensor([labels[int(client)] for client in clients])


def run_rounds(
    rounds: int,
    clients: Sequence[ClientId],
    num_participants: int,
    cluster_labels: Clusters | None = None,
    num_clusters: int = 5,
    seed: int = 0,
) -> list[list[ClientId]]:
    """Return the participants of each round if all of them reply."""
    sampler, state, rounds_run = FedCluster(num_clusters), dict[str, Tensor](), []
    known = (cluster_labels,) if cluster_labels else ()
    for number in range(1, rounds + 1):
        generator = derive_generator(seed, "participants", number)
        server_round = SamplerRound(number, clients, num_participants, generator, *known)
        rounds_run.append(list(sampler.choose(server_round, state)))
        state = dict(learn(sampler, number, rounds_run[-1], state))
    return rounds_run


def learn(
    sampler: FedCluster, number: int, participants: Sequence[ClientId], state: TensorState
) -> TensorState:
    updates = [ClientUpdate(client, 10, Message()) for client in participants]
    return sampler.learn(SamplerFeedback(number, updates), state)


def test_without_clusters_clients_are_grouped_by_id() -> None:
    rounds_run = run_rounds(15, range(20), num_participants=10)
    for cycle in (rounds_run[:5], rounds_run[5:10], rounds_run[10:]):
        assert sorted(map(tuple, cycle)) == [(n, n + 5, n + 10, n + 15) for n in range(5)]


def test_order_of_each_cycle_is_random() -> None:
    orders = {
        tuple(int(chosen[0]) % 3 for chosen in rounds_run[start : start + 3])
        for seed in range(30)
        for rounds_run in [run_rounds(6, range(9), 3, num_clusters=3, seed=seed)]
        for start in (0, 3)
    }
    assert len(orders) == 6  # of three clusters
    rounds_run = run_rounds(60, range(9), 3, num_clusters=3)
    assert len({tuple(int(c[0]) % 3 for c in rounds_run[t : t + 3]) for t in range(0, 60, 3)}) == 6


def test_clusters_of_the_method_take_part_in_turn() -> None:
    labels = [0, 0, 1, 2, 2, 2, 0]
    rounds_run = run_rounds(6, range(7), 2, make_cluster_labels(labels))
    for cycle in (rounds_run[:3], rounds_run[3:]):
        clusters = [{labels[int(client)] for client in chosen} for chosen in cycle]
        assert sorted(clusters, key=min) == [{0}, {1}, {2}]
        assert sorted(map(len, cycle)) == [1, 2, 2]  # one cluster has a single client
    unseen = run_rounds(3, range(5), 5, make_cluster_labels([0, 0, -1, 1, -1]))
    assert sorted(map(tuple, unseen)) == [
        (0, 1),
        (2, 4),
        (3,),
    ]  # clients without a cluster form one more


def test_clients_of_a_cluster_are_equally_likely() -> None:
    seats = Counter(
        client for seed in range(400) for client in run_rounds(1, range(6), 2, None, 1, seed)[0]
    )
    assert all(95 <= seats[client] <= 175 for client in range(6))  # 133 each are expected


def test_named_clients_are_grouped_by_hash() -> None:
    names = [f"site-{n}" for n in range(12)]
    groups = compute_client_keys(names) % 4
    clusters = [
        tuple(n for n, g in zip(names, groups, strict=True) if g == own) for own in range(4)
    ]
    occupied = sorted(group for group in clusters if group)
    rounds_run = run_rounds(len(occupied), names, 12, num_clusters=4)
    assert sorted(map(tuple, rounds_run)) == occupied


@given(st.integers(0, 10**6), st.integers(1, 30), st.data())
def test_one_cluster_equals_uniform(seed: int, clients: int, data: st.DataObject) -> None:
    num_participants = data.draw(st.integers(1, clients))
    rounds_run = run_rounds(4, range(clients), num_participants, num_clusters=1, seed=seed)
    for number, chosen in enumerate(rounds_run, start=1):
        generator = derive_generator(seed, "participants", number)
        server_round = SamplerRound(number, range(clients), num_participants, generator)
        assert chosen == Uniform().choose(server_round, {})


def test_cycle_continues_if_clusters_change() -> None:
    """Six clusters become two: the least recent cluster is next."""
    sampler, state = FedCluster(), dict[str, Tensor]()
    for number, client in enumerate(range(4), start=1):
        state = dict(learn(sampler, number, [client], state))
    known = make_cluster_labels([0, 0, 1, 1, 0, 1])

    def choose(number: int) -> list[ClientId]:
        server_round = SamplerRound(number, range(6), 6, derive_generator(0), known)
        return list(sampler.choose(server_round, state))

    assert choose(5) in ([0, 1, 4], [2, 3, 5])  # start of a new cycle of two rounds
    assert choose(4) == [0, 1, 4]  # not chosen in the cycle of rounds 3 and 4
    state = dict(learn(sampler, 5, [0, 3], state))
    state = dict(learn(sampler, 6, [1], state))
    assert choose(6) == [2, 3, 5]  # both were chosen, this one less recently
