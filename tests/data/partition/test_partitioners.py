"""Every partition is what its definition says, for any sizes, ratios and seeds."""

from collections import Counter
from itertools import combinations
from math import comb

import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st
from torch import Tensor

from cadis.data.partition import (
    PARTITIONERS,
    BalancedCluster,
    Dirichlet,
    Iid,
    MultiCluster,
    Partition,
    Partitioner,
    PowerLaw,
    UnbalancedCluster,
)
from cadis.data.partition.splitting import apportion, deal_out, lift
from cadis.errors import CadisError
from cadis.rng import generator_for

LABELS = torch.arange(2000) % 10
SEEDS = st.integers(0, 10**6)


@st.composite
def some_labels(draw: st.DrawFn) -> Tensor:
    """Labels of classes of unequal supply, in no order; one class may be missing."""
    supply = draw(st.lists(st.integers(30, 300), min_size=5, max_size=12))
    supply[draw(st.integers(0, len(supply) - 1))] *= draw(st.integers(0, 1))
    labels = torch.arange(len(supply)).repeat_interleave(torch.tensor(supply))
    return labels[torch.randperm(len(labels), generator=generator_for(draw(SEEDS)))]


def counts_of(partition: Partition, labels: Tensor) -> Tensor:
    """Counted one by one, not by the code under test."""
    known, classes = labels.tolist(), range(int(labels.max()) + 1)
    owned = [Counter(known[index] for index in indices.tolist()) for indices in partition.indices]
    return torch.tensor([[counts[label] for label in classes] for counts in owned])


@given(
    partitioner=st.sampled_from([kind() for kind in PARTITIONERS.values()]),
    labels=some_labels(),
    clients=st.integers(5, 20),
    minimum=st.integers(1, 9),
    seed=SEEDS,
)
def test_what_all_have_in_common(
    partitioner: Partitioner, labels: Tensor, clients: int, minimum: int, seed: int
) -> None:
    try:
        partition = partitioner.deal(labels, clients, minimum, generator_for(seed))
    except CadisError:  # an impossible request; see below
        reject()
    again = partitioner.deal(labels, clients, minimum, generator_for(seed))
    everything = torch.cat(partition.indices)
    assert torch.equal(everything, torch.cat(again.indices))  # seeded
    assert len(partition.indices) == clients
    assert len(everything.unique()) == len(everything)  # no example belongs to two clients
    assert min(map(len, partition.indices)) >= minimum
    assert torch.equal(
        partition.counts(labels, int(labels.max()) + 1), counts_of(partition, labels)
    )
    if partition.true_clusters is not None:
        assert len(partition.true_clusters) == clients


@pytest.mark.parametrize("partitioner", [kind() for kind in PARTITIONERS.values()])
def test_another_seed_deals_otherwise(partitioner: Partitioner) -> None:
    one, other = (partitioner.deal(LABELS, 20, 2, generator_for(seed)) for seed in (5, 6))
    assert not torch.equal(torch.cat(one.indices)[:50], torch.cat(other.indices)[:50])


@given(
    labels=some_labels(),
    clients=st.integers(6, 30),
    ratio=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    each=st.sampled_from(["auto", 1]),
    deviation=st.sampled_from([0.0, 0.2, 3.0]),
    seed=SEEDS,
)
def test_mc_clusters_have_classes_of_their_own(
    labels: Tensor, clients: int, ratio: list[int], each: int | str, deviation: float, seed: int
) -> None:
    partitioner = MultiCluster(tuple(ratio), each, deviation)  # type: ignore[arg-type]
    partition = partitioner.deal(labels, clients, 1, generator_for(seed))
    counts, clusters = counts_of(partition, labels), partition.true_clusters
    assert clusters is not None
    owned = [set(row.nonzero()[:, 0].tolist()) for row in counts]
    for row in counts:
        present = row[row > 0]
        assert (present == present[0]).all()  # the label distribution of its cluster
    for i, j in combinations(range(clients), 2):
        assert owned[i] == owned[j] if clusters[i] == clusters[j] else not owned[i] & owned[j]
    present_classes = len(labels.unique())
    number = len(ratio) if each == 1 else present_classes
    assert len(set.union(*owned)) == number
    assert all(len(o) in (1, *((present_classes // len(ratio) + d) for d in (0, 1))) for o in owned)
    assert _is_as_large_as_can_be(counts, labels)


def _is_as_large_as_can_be(counts: Tensor, labels: Tensor) -> bool:
    """Of some class, fewer samples are left over than clients hold it."""
    left = torch.bincount(labels) - counts.sum(dim=0)
    return bool((left >= 0).all()) and bool((left < (counts > 0).sum(dim=0)).any())


def test_mc_number_of_clients_follows_the_ratio() -> None:
    def members(clients: int, *ratio: int) -> list[int]:
        partition = MultiCluster(ratio).deal(LABELS, clients, 2, generator_for(0))
        assert partition.true_clusters is not None
        return torch.bincount(partition.true_clusters).tolist()

    assert members(20, 3, 3, 2, 1, 1) == [6, 6, 4, 2, 2]
    assert members(100, 3, 3, 2, 1, 1) == [30, 30, 20, 10, 10]
    assert members(7, 100, 1, 1) == [5, 1, 1]


@pytest.mark.parametrize("kind", [MultiCluster, UnbalancedCluster])
def test_sizes_are_unbalanced_but_not_by_cluster(
    kind: type[MultiCluster | UnbalancedCluster],
) -> None:
    labels = torch.arange(200_000) % 100
    partition = kind().deal(labels, 100, 2, generator_for(1))
    sizes = torch.tensor([float(len(indices)) for indices in partition.indices])
    assert 0.1 < sizes.std() / sizes.mean() < 0.3
    assert 0.45 * sizes.mean() < sizes.min() <= sizes.max() < 1.55 * sizes.mean()
    assert partition.true_clusters is not None
    big = partition.true_clusters == 0
    assert 0.85 < sizes[big].mean() / sizes[~big].mean() < 1.15


@given(
    labels=some_labels(),
    clients=st.integers(3, 25),
    majority=st.floats(0.2, 1),
    each=st.integers(1, 4),
    seed=SEEDS,
)
def test_bc_is_one_cluster_and_loners(
    labels: Tensor, clients: int, majority: float, each: int, seed: int
) -> None:
    members = max(1, round(majority * clients))
    classes = len(labels.unique())
    partitioner = BalancedCluster(majority, each)
    if comb(classes, each) < 1 + clients - members:
        with pytest.raises(CadisError, match="of their own"):
            partitioner.deal(labels, clients, 1, generator_for(seed))
        return
    partition = partitioner.deal(labels, clients, 1, generator_for(seed))
    counts = counts_of(partition, labels)
    assert partition.true_clusters is not None
    alone = list(range(1, clients - members + 1))
    assert partition.true_clusters.tolist() == [0] * members + alone
    assert len(counts.sum(dim=1).unique()) == 1  # everybody has as many
    assert ((counts > 0).sum(dim=1) == each).all()
    assert len(counts[:members].unique(dim=0)) == 1
    assert len((counts > 0)[members - 1 :].unique(dim=0)) == clients - members + 1  # all differ
    assert _is_as_large_as_can_be(counts, labels)


def test_bc_loners_take_the_rarest_classes() -> None:
    partition = BalancedCluster().deal(LABELS, 10, 2, generator_for(3))  # 6 alike, 4 alone
    held = counts_of(partition, LABELS) > 0
    assert held[5:].sum(dim=0).tolist() == [1] * 10  # 5 sets of 2 classes cover all 10 once


def test_uc_is_bc_with_unequal_sizes() -> None:
    balanced = BalancedCluster().deal(LABELS, 20, 2, generator_for(0))
    unbalanced = UnbalancedCluster(size_deviation=0).deal(LABELS, 20, 2, generator_for(0))
    for partition in (balanced, unbalanced):
        sizes = {len(indices) for indices in partition.indices}
        assert len(sizes) == 1
    counts = counts_of(UnbalancedCluster().deal(LABELS, 20, 2, generator_for(0)), LABELS)
    for row in counts:
        assert len(row[row > 0].unique()) == 1
    assert ((counts > 0).sum(dim=1) == 2).all()


@given(labels=some_labels(), clients=st.integers(2, 30), exponent=st.floats(0, 3), seed=SEEDS)
def test_pa_follows_the_power_law(labels: Tensor, clients: int, exponent: float, seed: int) -> None:
    counts = counts_of(PowerLaw(exponent).deal(labels, clients, 0, generator_for(seed)), labels)
    law = [rank**-exponent for rank in range(1, clients + 1)]
    for column, supply in zip(counts.T, torch.bincount(labels).tolist(), strict=True):
        dealt = sorted(column.tolist(), reverse=True)
        assert sum(dealt) == supply  # everything is dealt out
        for count, share in zip(dealt, law, strict=True):
            assert abs(count - supply * share / sum(law)) < 1 + 1e-6


def test_pa_orders_the_clients_anew_for_each_class() -> None:
    labels = torch.arange(50_000) % 10
    counts = counts_of(PowerLaw().deal(labels, 50, 2, generator_for(0)), labels)
    assert len(counts.argmax(dim=0).unique()) > 5


@given(
    clients=st.integers(2, 30),
    concentration=st.sampled_from([0.001, 0.1, 0.5, 10.0]),
    minimum=st.integers(1, 20),
    seed=SEEDS,
)
def test_dirichlet_deals_everything_and_keeps_the_minimum(
    clients: int, concentration: float, minimum: int, seed: int
) -> None:
    partition = Dirichlet(concentration).deal(LABELS, clients, minimum, generator_for(seed))
    assert sorted(torch.cat(partition.indices).tolist()) == list(range(2000))
    assert min(map(len, partition.indices)) >= minimum


def test_dirichlet_concentration_is_what_it_says() -> None:
    labels = torch.arange(100_000) % 10

    def spread(concentration: float) -> float:
        dealt = Dirichlet(concentration).deal(labels, 20, 1, generator_for(0))
        return float((counts_of(dealt, labels) / 10_000).double().var(correction=0))

    for concentration in (0.1, 1.0, 10.0):
        # A share's variance under Dirichlet(c, ..., c) of n clients: (1/n)(1 - 1/n) / (n c + 1).
        expected = (1 / 20) * (19 / 20) / (20 * concentration + 1)
        assert spread(concentration) == pytest.approx(expected, rel=0.35)


def test_iid_is_even_and_of_one_cluster() -> None:
    labels = torch.arange(10_007) % 10
    partition = Iid().deal(labels, 7, 2, generator_for(0))
    sizes = [len(indices) for indices in partition.indices]
    assert sum(sizes) == 10_007
    assert max(sizes) - min(sizes) == 1
    assert partition.true_clusters is not None
    assert partition.true_clusters.tolist() == [0] * 7
    counts = counts_of(partition, labels)
    assert ((counts - 143).abs() < 5 * 143**0.5).all()


def test_ten_thousand_clients() -> None:
    labels = torch.arange(60_000) % 10
    for partitioner in (MultiCluster(), PowerLaw(), Iid(), Dirichlet()):
        partition = partitioner.deal(labels, 10_000, 2, generator_for(0))
        assert min(map(len, partition.indices)) >= 2
    many = torch.arange(400_000) % 100
    for kind in (BalancedCluster, UnbalancedCluster):
        partition = kind(majority=0.1, classes_per_client=5).deal(many, 10_000, 2, generator_for(0))
        assert min(map(len, partition.indices)) >= 5


@pytest.mark.parametrize(
    ("partitioner", "labels", "clients", "sentence"),
    [
        (
            MultiCluster((1,) * 7),
            LABELS % 5,
            20,
            "7 clusters cannot own distinct ones of 5 classes",
        ),
        (MultiCluster((1, 1), 6), LABELS, 20, "2 clusters of 6 classes each"),
        (MultiCluster((1, 1, 1, 1)), LABELS, 3, "3 clients cannot form 4 clusters"),
        (MultiCluster((9, 1)), LABELS[:100], 50, "50 clients are too many: class"),
        (MultiCluster(), LABELS, 10**9, "1000000000 clients of at least 2 samples are too many"),
        (BalancedCluster(), LABELS, 10**9, "1000000000 clients of at least 2 samples are too"),
        (UnbalancedCluster(), LABELS, 2**62, "clients of at least 2 samples are too many"),
        (BalancedCluster(0.5, 2), LABELS % 3, 20, "10 clients and a cluster .* 3 such sets"),
        (BalancedCluster(0.5, 9), LABELS % 3, 20, "0 such sets"),
        (UnbalancedCluster(), LABELS[:100], 40, "40 clients are too many"),
        (PowerLaw(), LABELS[:100], 101, "101 clients of at least 2 samples are too many for 100"),
        (Iid(), LABELS[:100], 51, "51 clients of at least 2"),
        (Dirichlet(), LABELS[:100], 51, "51 clients of at least 2"),
    ],
)
def test_impossible_requests(
    partitioner: Partitioner, labels: Tensor, clients: int, sentence: str
) -> None:
    with pytest.raises(CadisError, match=sentence):
        partitioner.deal(labels, clients, 2, generator_for(0))


COUNTS = st.lists(st.integers(0, 50), min_size=2, max_size=8)


def test_apportion_by_hand() -> None:
    # 10 by 3:3:2:1:1 is exact. 7 by 1:1:1 is 2.33 each: the first gets the one left over.
    # 5 by 0:4:1 is 0, 4, 1. 3 by 5:3:1 is 1.67, 1.0, 0.33: the largest remainder is the first's.
    assert apportion(torch.tensor([10]), torch.tensor([[3, 3, 2, 1, 1]])).tolist() == [
        [3, 3, 2, 1, 1]
    ]
    rows = apportion(torch.tensor([7, 5, 3]), torch.tensor([[1, 1, 1], [0, 4, 1], [5, 3, 1]]))
    assert rows.tolist() == [[3, 2, 2], [0, 4, 1], [2, 1, 0]]


@given(total=st.integers(0, 10**6), weights=COUNTS.filter(any))
def test_apportion_is_within_one_of_the_exact_share(total: int, weights: list[int]) -> None:
    given_out = apportion(torch.tensor([total]), torch.tensor([weights]))[0].tolist()
    assert sum(given_out) == total
    for count, weight in zip(given_out, weights, strict=True):
        assert abs(count - total * weight / sum(weights)) < 1 + 1e-6
        assert weight or not count


@given(rows=st.lists(COUNTS, min_size=2, max_size=6), minimum=st.integers(0, 20))
def test_lift_moves_as_little_as_needed(rows: list[list[int]], minimum: int) -> None:
    width = min(map(len, rows))
    counts = torch.tensor([row[:width] for row in rows])
    minimum = min(minimum, int(counts.sum()) // len(counts))
    lifted = lift(counts, minimum, generator_for(0))
    before, after = counts.sum(dim=1), lifted.sum(dim=1)
    assert (lifted >= 0).all()
    assert torch.equal(lifted.sum(dim=0), counts.sum(dim=0))  # nothing is lost
    lacking = before < minimum
    assert (after[lacking] == minimum).all()
    assert (after[~lacking] >= minimum).all()
    assert (after[~lacking] <= before[~lacking]).all()


def test_deal_out_gives_what_the_counts_say() -> None:
    labels = torch.tensor([2, 0, 2, 1, 0, 2, 0, 2])
    counts = torch.tensor([[1, 0, 2], [0, 0, 0], [2, 1, 1]])
    dealt = deal_out(labels, counts, generator_for(0))
    assert [sorted(labels[indices].tolist()) for indices in dealt] == [[0, 2, 2], [], [0, 0, 1, 2]]
    assert len(torch.cat(dealt).unique()) == 7
