"""FedCluster: clusters take part in turn."""

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cadis.algorithm.samplers import FedCluster, SampledRound, SamplerRound, Uniform
from cadis.rng import generator_for
from cadis.types import ClientId, ClientUpdate, Message, TensorState, client_keys

Clusters = Callable[[Sequence[ClientId]], Tensor]


def given_clusters(labels: Sequence[int]) -> Clusters:
    return lambda clients: torch.tensor([labels[int(client)] for client in clients])


def taken_part(
    rounds: int,
    clients: Sequence[ClientId],
    wanted: int,
    cluster_labels: Clusters | None = None,
    num_clusters: int = 5,
    seed: int = 0,
) -> list[list[ClientId]]:
    """Who takes part, round by round, if everybody who is asked answers."""
    sampler, memory, found = FedCluster(num_clusters), dict[str, Tensor](), []
    known = (cluster_labels,) if cluster_labels else ()
    for number in range(1, rounds + 1):
        generator = generator_for(seed, "participants", number)
        among = SamplerRound(number, clients, wanted, generator, *known)
        found.append(list(sampler.choose(among, memory)))
        memory = dict(after(sampler, number, found[-1], memory))
    return found


def after(
    sampler: FedCluster, number: int, answered: Sequence[ClientId], memory: TensorState
) -> TensorState:
    updates = [ClientUpdate(client, 10, Message()) for client in answered]
    return sampler.learn(SampledRound(number, updates), memory)


def test_without_clusters_clients_are_in_groups_by_their_ids() -> None:
    found = taken_part(15, range(20), wanted=10)
    for cycle in (found[:5], found[5:10], found[10:]):
        assert sorted(map(tuple, cycle)) == [(n, n + 5, n + 10, n + 15) for n in range(5)]


def test_the_order_of_a_cycle_is_drawn_anew() -> None:
    orders = {
        tuple(int(chosen[0]) % 3 for chosen in found[start : start + 3])
        for seed in range(30)
        for found in [taken_part(6, range(9), 3, num_clusters=3, seed=seed)]
        for start in (0, 3)
    }
    assert len(orders) == 6  # of three clusters
    found = taken_part(60, range(9), 3, num_clusters=3)
    assert len({tuple(int(c[0]) % 3 for c in found[t : t + 3]) for t in range(0, 60, 3)}) == 6


def test_the_clusters_of_the_method_take_part_in_turn() -> None:
    labels = [0, 0, 1, 2, 2, 2, 0]
    found = taken_part(6, range(7), 2, given_clusters(labels))
    for cycle in (found[:3], found[3:]):
        clusters = [{labels[int(client)] for client in chosen} for chosen in cycle]
        assert sorted(clusters, key=min) == [{0}, {1}, {2}]
        assert sorted(map(len, cycle)) == [1, 2, 2]  # one cluster has a single client
    unseen = taken_part(3, range(5), 5, given_clusters([0, 0, -1, 1, -1]))
    assert sorted(map(tuple, unseen)) == [(0, 1), (2, 4), (3,)]  # are one more cluster


def test_within_a_cluster_everybody_is_as_likely() -> None:
    seats = Counter(
        client for seed in range(400) for client in taken_part(1, range(6), 2, None, 1, seed)[0]
    )
    assert all(95 <= seats[client] <= 175 for client in range(6))  # 133 each are expected


def test_names_are_in_groups_by_their_hashes() -> None:
    names = [f"site-{n}" for n in range(12)]
    groups = client_keys(names) % 4
    clusters = [
        tuple(n for n, g in zip(names, groups, strict=True) if g == own) for own in range(4)
    ]
    occupied = sorted(group for group in clusters if group)
    found = taken_part(len(occupied), names, 12, num_clusters=4)
    assert sorted(map(tuple, found)) == occupied


@given(st.integers(0, 10**6), st.integers(1, 30), st.data())
def test_one_cluster_is_uniform_bit_for_bit(seed: int, clients: int, data: st.DataObject) -> None:
    wanted = data.draw(st.integers(1, clients))
    found = taken_part(4, range(clients), wanted, num_clusters=1, seed=seed)
    for number, chosen in enumerate(found, start=1):
        generator = generator_for(seed, "participants", number)
        among = SamplerRound(number, range(clients), wanted, generator)
        assert chosen == Uniform().choose(among, {})


def test_clusters_that_change_do_not_stop_the_cycle() -> None:
    """Six clusters become two: the one whose turn was longest ago is next, and so on."""
    sampler, memory = FedCluster(), dict[str, Tensor]()
    for number, client in enumerate(range(4), start=1):
        memory = dict(after(sampler, number, [client], memory))
    known = given_clusters([0, 0, 1, 1, 0, 1])

    def chosen(number: int) -> list[ClientId]:
        among = SamplerRound(number, range(6), 6, generator_for(0), known)
        return list(sampler.choose(among, memory))

    assert chosen(5) in ([0, 1, 4], [2, 3, 5])  # a new cycle of two begins
    assert chosen(4) == [0, 1, 4]  # had none in the cycle of rounds 3 and 4
    memory = dict(after(sampler, 5, [0, 3], memory))
    memory = dict(after(sampler, 6, [1], memory))
    assert chosen(6) == [2, 3, 5]  # both had one, this one longer ago
