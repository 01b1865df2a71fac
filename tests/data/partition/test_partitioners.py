"""Tests that each partitioner follows its definition, for any sizes, ratios and seeds."""

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
from cadis.data.partition.splitting import apportion, assign_samples, raise_to_minimum
from cadis.errors import CadisError
from cadis.rng import derive_generator

LABELS = torch.arange(2000) % 10
SEEDS = st.integers(0, 10**6)


@st.composite
def draw_labels(draw: st.DrawFn) -> Tensor:
    """Draw labels of classes of unequal size in random order; one class may be missing."""
    supply = draw(st.lists(st.integers(30, 300), min_size=5, max_size=12))
    supply[draw(st.integers(0, len(supply) - 1))] *= draw(st.integers(0, 1))
    labels = torch.arange(len(supply)).repeat_interleave(torch.tensor(supply))
    return labels[torch.randperm(len(labels), generator=derive_generator(draw(SEEDS)))]


def count_labels(partition: Partition, labels: Tensor) -> Tensor:
    """Count samples one by one, without the code under test, (clients, classes)."""
    values, classes = labels.tolist(), range(int(labels.max()) + 1)
    clients = [Counter(values[index] for index in part.tolist()) for part in partition.indices]
    return torch.tensor([[counts[label] for label in classes] for counts in clients])


@given(
    partitioner=st.sampled_from([cls() for cls in PARTITIONERS.values()]),
    labels=draw_labels(),
    clients=st.integers(5, 20),
    minimum=st.integers(1, 9),
    seed=SEEDS,
)
def test_common_properties_of_all_partitioners(
    partitioner: Partitioner, labels: Tensor, clients: int, minimum: int, seed: int
) -> None:
    try:
        partition = partitioner.split(labels, clients, minimum, derive_generator(seed))
    except CadisError:  # an impossible request; see below
        reject()
    repeated = partitioner.split(labels, clients, minimum, derive_generator(seed))
    indices = torch.cat(partition.indices)
    assert torch.equal(indices, torch.cat(repeated.indices))  # the seed determines the draw
    assert len(partition.indices) == clients
    assert len(indices.unique()) == len(indices)  # no example belongs to two clients
    assert min(map(len, partition.indices)) >= minimum
    assert torch.equal(
        partition.count_labels(labels, int(labels.max()) + 1), count_labels(partition, labels)
    )
    if partition.true_clusters is not None:
        assert len(partition.true_clusters) == clients


@pytest.mark.parametrize("partitioner", [cls() for cls in PARTITIONERS.values()])
def test_another_seed_gives_another_partition(partitioner: Partitioner) -> None:
    one, other = (partitioner.split(LABELS, 20, 2, derive_generator(seed)) for seed in (5, 6))
    assert not torch.equal(torch.cat(one.indices)[:50], torch.cat(other.indices)[:50])


@given(
    labels=draw_labels(),
    clients=st.integers(6, 30),
    ratio=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    each=st.sampled_from(["auto", 1]),
    deviation=st.sampled_from([0.0, 0.2, 3.0]),
    seed=SEEDS,
)
def test_mc_clusters_have_disjoint_classes(
    labels: Tensor, clients: int, ratio: list[int], each: int | str, deviation: float, seed: int
) -> None:
    partitioner = MultiCluster(tuple(ratio), each, deviation)  # type: ignore[arg-type]
    partition = partitioner.split(labels, clients, 1, derive_generator(seed))
    counts, clusters = count_labels(partition, labels), partition.true_clusters
    assert clusters is not None
    held = [set(row.nonzero()[:, 0].tolist()) for row in counts]
    for row in counts:
        present = row[row > 0]
        assert (present == present[0]).all()  # the label distribution of its cluster
    for i, j in combinations(range(clients), 2):
        assert held[i] == held[j] if clusters[i] == clusters[j] else not held[i] & held[j]
    present_classes = len(labels.unique())
    number = len(ratio) if each == 1 else present_classes
    assert len(set.union(*held)) == number
    assert all(len(h) in (1, *((present_classes // len(ratio) + d) for d in (0, 1))) for h in held)
    assert _has_maximal_sizes(counts, labels)


def _has_maximal_sizes(counts: Tensor, labels: Tensor) -> bool:
    """Return whether some class has fewer unused samples than clients that hold it."""
    unused = torch.bincount(labels) - counts.sum(dim=0)
    return bool((unused >= 0).all()) and bool((unused < (counts > 0).sum(dim=0)).any())


def test_mc_number_of_clients_follows_the_ratio() -> None:
    def count_members(clients: int, *ratio: int) -> list[int]:
        partition = MultiCluster(ratio).split(LABELS, clients, 2, derive_generator(0))
        assert partition.true_clusters is not None
        return torch.bincount(partition.true_clusters).tolist()

    assert count_members(20, 3, 3, 2, 1, 1) == [6, 6, 4, 2, 2]
    assert count_members(100, 3, 3, 2, 1, 1) == [30, 30, 20, 10, 10]
    assert count_members(7, 100, 1, 1) == [5, 1, 1]


@pytest.mark.parametrize("cls", [MultiCluster, UnbalancedCluster])
def test_sizes_do_not_depend_on_the_cluster(
    cls: type[MultiCluster | UnbalancedCluster],
) -> None:
    labels = torch.arange(200_000) % 100
    partition = cls().split(labels, 100, 2, derive_generator(1))
    sizes = torch.tensor([float(len(indices)) for indices in partition.indices])
    assert 0.1 < sizes.std() / sizes.mean() < 0.3
    assert 0.45 * sizes.mean() < sizes.min() <= sizes.max() < 1.55 * sizes.mean()
    assert partition.true_clusters is not None
    big = partition.true_clusters == 0
    assert 0.85 < sizes[big].mean() / sizes[~big].mean() < 1.15


@given(
    labels=draw_labels(),
    clients=st.integers(3, 25),
    majority=st.floats(0.2, 1),
    each=st.integers(1, 4),
    seed=SEEDS,
)
def test_bc_has_one_cluster_and_single_clients(
    labels: Tensor, clients: int, majority: float, each: int, seed: int
) -> None:
    members = max(1, round(majority * clients))
    classes = len(labels.unique())
    partitioner = BalancedCluster(majority, each)
    if comb(classes, each) < 1 + clients - members:
        with pytest.raises(CadisError, match="cannot each have a different set"):
            partitioner.split(labels, clients, 1, derive_generator(seed))
        return
    partition = partitioner.split(labels, clients, 1, derive_generator(seed))
    counts = count_labels(partition, labels)
    assert partition.true_clusters is not None
    singles = list(range(1, clients - members + 1))
    assert partition.true_clusters.tolist() == [0] * members + singles
    assert len(counts.sum(dim=1).unique()) == 1  # all clients have the same size
    assert ((counts > 0).sum(dim=1) == each).all()
    assert len(counts[:members].unique(dim=0)) == 1
    assert len((counts > 0)[members - 1 :].unique(dim=0)) == clients - members + 1  # all differ
    assert _has_maximal_sizes(counts, labels)


def test_bc_single_clients_hold_the_rarest_classes() -> None:
    partition = BalancedCluster().split(LABELS, 10, 2, derive_generator(3))  # 6 in a cluster
    held = count_labels(partition, LABELS) > 0
    assert held[5:].sum(dim=0).tolist() == [1] * 10  # 5 sets of 2 classes cover all 10 once


def test_uc_is_bc_with_unequal_sizes() -> None:
    balanced = BalancedCluster().split(LABELS, 20, 2, derive_generator(0))
    unbalanced = UnbalancedCluster(size_deviation=0).split(LABELS, 20, 2, derive_generator(0))
    for partition in (balanced, unbalanced):
        sizes = {len(indices) for indices in partition.indices}
        assert len(sizes) == 1
    counts = count_labels(UnbalancedCluster().split(LABELS, 20, 2, derive_generator(0)), LABELS)
    for row in counts:
        assert len(row[row > 0].unique()) == 1
    assert ((counts > 0).sum(dim=1) == 2).all()


@given(labels=draw_labels(), clients=st.integers(2, 30), exponent=st.floats(0, 3), seed=SEEDS)
def test_pa_follows_the_power_law(labels: Tensor, clients: int, exponent: float, seed: int) -> None:
    counts = count_labels(
        PowerLaw(exponent).split(labels, clients, 0, derive_generator(seed)), labels
    )
    law = [rank**-exponent for rank in range(1, clients + 1)]
    for column, supply in zip(counts.T, torch.bincount(labels).tolist(), strict=True):
        sizes = sorted(column.tolist(), reverse=True)
        assert sum(sizes) == supply  # all samples are distributed
        for count, share in zip(sizes, law, strict=True):
            assert abs(count - supply * share / sum(law)) < 1 + 1e-6


def test_pa_draws_a_new_order_of_clients_for_each_class() -> None:
    labels = torch.arange(50_000) % 10
    counts = count_labels(PowerLaw().split(labels, 50, 2, derive_generator(0)), labels)
    assert len(counts.argmax(dim=0).unique()) > 5


@given(
    clients=st.integers(2, 30),
    concentration=st.sampled_from([0.001, 0.1, 0.5, 10.0]),
    minimum=st.integers(1, 20),
    seed=SEEDS,
)
def test_dirichlet_distributes_all_samples_and_keeps_the_minimum(
    clients: int, concentration: float, minimum: int, seed: int
) -> None:
    partition = Dirichlet(concentration).split(LABELS, clients, minimum, derive_generator(seed))
    assert sorted(torch.cat(partition.indices).tolist()) == list(range(2000))
    assert min(map(len, partition.indices)) >= minimum


def test_dirichlet_shares_have_the_expected_variance() -> None:
    labels = torch.arange(100_000) % 10

    def compute_variance(concentration: float) -> float:
        partition = Dirichlet(concentration).split(labels, 20, 1, derive_generator(0))
        return float((count_labels(partition, labels) / 10_000).double().var(correction=0))

    for concentration in (0.1, 1.0, 10.0):
        # Variance of a share under Dirichlet(c, ..., c), n clients: (1/n)(1 - 1/n) / (n c + 1).
        expected = (1 / 20) * (19 / 20) / (20 * concentration + 1)
        assert compute_variance(concentration) == pytest.approx(expected, rel=0.35)


def test_iid_has_equal_sizes_and_one_cluster() -> None:
    labels = torch.arange(10_007) % 10
    partition = Iid().split(labels, 7, 2, derive_generator(0))
    sizes = [len(indices) for indices in partition.indices]
    assert sum(sizes) == 10_007
    assert max(sizes) - min(sizes) == 1
    assert partition.true_clusters is not None
    assert partition.true_clusters.tolist() == [0] * 7
    counts = count_labels(partition, labels)
    assert ((counts - 143).abs() < 5 * 143**0.5).all()


def test_partitions_of_ten_thousand_clients() -> None:
    labels = torch.arange(60_000) % 10
    for partitioner in (MultiCluster(), PowerLaw(), Iid(), Dirichlet()):
        partition = partitioner.split(labels, 10_000, 2, derive_generator(0))
        assert min(map(len, partition.indices)) >= 2
    many = torch.arange(400_000) % 100
    for cls in (BalancedCluster, UnbalancedCluster):
        partition = cls(majority=0.1, classes_per_client=5).split(
            many, 10_000, 2, derive_generator(0)
        )
        assert min(map(len, partition.indices)) >= 5


@pytest.mark.parametrize(
    ("partitioner", "labels", "clients", "sentence"),
    [
        (
            MultiCluster((1,) * 7),
            LABELS % 5,
            20,
            "5 classes are too few for 7 clusters without a",
        ),
        (MultiCluster((1, 1), 6), LABELS, 20, "2 clusters of 6 classes each"),
        (MultiCluster((1, 1, 1, 1)), LABELS, 3, "3 clients cannot form 4 clusters"),
        (MultiCluster((9, 1)), LABELS[:100], 50, "50 clients are too many: class"),
        (MultiCluster(), LABELS, 10**9, "1000000000 clients with at least 2 samples each"),
        (BalancedCluster(), LABELS, 10**9, "1000000000 clients with at least 2 samples each"),
        (UnbalancedCluster(), LABELS, 2**62, "clients with at least 2 samples each are too many"),
        (BalancedCluster(0.5, 2), LABELS % 3, 20, "10 clients and a cluster .* allow 3 sets"),
        (BalancedCluster(0.5, 9), LABELS % 3, 20, "allow 0 sets"),
        (UnbalancedCluster(), LABELS[:100], 40, "40 clients are too many"),
        (PowerLaw(), LABELS[:100], 101, "101 clients .* are too many for 100"),
        (Iid(), LABELS[:100], 51, "51 clients with at least 2"),
        (Dirichlet(), LABELS[:100], 51, "51 clients with at least 2"),
    ],
)
def test_impossible_partitions_are_rejected(
    partitioner: Partitioner, labels: Tensor, clients: int, sentence: str
) -> None:
    with pytest.raises(CadisError, match=sentence):
        partitioner.split(labels, clients, 2, derive_generator(0))


COUNTS = st.lists(st.integers(0, 50), min_size=2, max_size=8)


def test_apportion_uses_the_largest_remainders() -> None:
    # 10 by 3:3:2:1:1 is exact. 7 by 1:1:1 is 2.33 each: the first gets the last one.
    # 5 by 0:4:1 is 0, 4, 1. 3 by 5:3:1 is 1.67, 1.0, 0.33: the first has the largest remainder.
    assert apportion(torch.tensor([10]), torch.tensor([[3, 3, 2, 1, 1]])).tolist() == [
        [3, 3, 2, 1, 1]
    ]
    rows = apportion(torch.tensor([7, 5, 3]), torch.tensor([[1, 1, 1], [0, 4, 1], [5, 3, 1]]))
    assert rows.tolist() == [[3, 2, 2], [0, 4, 1], [2, 1, 0]]


@given(total=st.integers(0, 10**6), weights=COUNTS.filter(any))
def test_apportion_is_within_one_of_the_exact_share(total: int, weights: list[int]) -> None:
    counts = apportion(torch.tensor([total]), torch.tensor([weights]))[0].tolist()
    assert sum(counts) == total
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count - total * weight / sum(weights)) < 1 + 1e-6
        assert weight or not count


@given(rows=st.lists(COUNTS, min_size=2, max_size=6), minimum=st.integers(0, 20))
def test_raise_to_minimum_moves_no_more_samples_than_needed(
    rows: list[list[int]], minimum: int
) -> None:
    width = min(map(len, rows))
    counts = torch.tensor([row[:width] for row in rows])
    minimum = min(minimum, int(counts.sum()) // len(counts))
    raised = raise_to_minimum(counts, minimum, derive_generator(0))
    before, after = counts.sum(dim=1), raised.sum(dim=1)
    assert (raised >= 0).all()
    assert torch.equal(raised.sum(dim=0), counts.sum(dim=0))  # nothing is lost
    lacking = before < minimum
    assert (after[lacking] == minimum).all()
    assert (after[~lacking] >= minimum).all()
    assert (after[~lacking] <= before[~lacking]).all()


def test_assign_samples_follows_the_counts() -> None:
    labels = torch.tensor([2, 0, 2, 1, 0, 2, 0, 2])
    counts = torch.tensor([[1, 0, 2], [0, 0, 0], [2, 1, 1]])
    parts = assign_samples(labels, counts, derive_generator(0))
    assert [sorted(labels[indices].tolist()) for indices in parts] == [[0, 2, 2], [], [0, 0, 1, 2]]
    assert len(torch.cat(parts).unique()) == 7
