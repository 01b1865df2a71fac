"""Partitions with clusters that share classes, and the exchange of samples between clients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cadis.data.partition import MultiCluster, OverlappingClusters, Partition, SoftClusters
from cadis.data.partition.splitting import swap_samples
from cadis.rng import derive_generator

LABELS = torch.arange(20_000) % 10


def split(partitioner: OverlappingClusters | SoftClusters | MultiCluster) -> Partition:
    return partitioner.split(LABELS, 20, 2, derive_generator(3))


def test_neighboring_clusters_share_two_classes() -> None:
    counts = split(OverlappingClusters()).count_labels(LABELS, 10)
    held = torch.stack([counts[clients] for clients in (0, 6, 12, 16, 18)]) > 0
    assert held.sum(dim=1).tolist() == [4] * 5
    shared = held.float() @ held.float().T
    expected = torch.tensor([[4, 2, 0, 0, 2], [2, 4, 2, 0, 0], [0, 2, 4, 2, 0]])
    assert torch.equal(shared[:3], expected.float())
    assert held.any(dim=0).all()


def test_number_of_classes_can_be_chosen() -> None:
    counts = split(OverlappingClusters(classes_per_cluster=3)).count_labels(LABELS, 10)
    assert ((counts > 0).sum(dim=1) == 3).all()


def test_clients_of_a_soft_cluster_draw_from_one_distribution() -> None:
    partition = split(SoftClusters(concentration=0.5))
    assert partition.true_clusters is not None
    counts = partition.count_labels(LABELS, 10).double()
    shares = counts / counts.sum(dim=1, keepdim=True)
    distance = torch.cdist(shares, shares, p=1) / 2  # total variation
    same = partition.true_clusters[:, None] == partition.true_clusters
    assert float(distance[same].max()) < 0.15
    assert float(distance[~same].min()) > 0.3


def test_large_concentration_gives_all_clusters_the_same_distribution() -> None:
    partition = split(SoftClusters(concentration=1e6, samples_per_client=500))
    shares = partition.count_labels(LABELS, 10) / 500
    assert float((shares.mean(dim=0) - 0.1).abs().max()) < 0.02


@pytest.mark.parametrize("cls", [OverlappingClusters, SoftClusters])
def test_sizes(cls: type[OverlappingClusters] | type[SoftClusters]) -> None:
    sizes = [len(indices) for indices in split(cls(samples_per_client=100)).indices]
    assert 80 < sum(sizes) / len(sizes) < 120
    assert min(sizes) >= 49
    assert max(sizes) <= 150
    assert len(set(sizes)) > 5
    largest = sum(len(indices) for indices in split(cls()).indices)
    assert largest > 3 * sum(sizes)


def test_all_classes_are_used_up_where_possible() -> None:
    """With one cluster of all classes and equal shares, hardly a sample is left over."""
    partitioner = OverlappingClusters(ratio=(1,), classes_per_cluster=10, size_deviation=0.0)
    partition = partitioner.split(LABELS, 10, 2, derive_generator(0))
    assert sum(len(indices) for indices in partition.indices) > 19_000


@given(st.floats(0, 1), st.integers(0, 99))
def test_swapped_samples(fraction: float, seed: int) -> None:
    indices = (torch.arange(10), torch.arange(10, 14), torch.arange(14, 34))
    swapped = swap_samples(indices, fraction, derive_generator(seed))
    assert [len(samples) for samples in swapped] == [10, 4, 20]
    assert torch.cat(swapped).sort().values.tolist() == list(range(34))
    for before, after in zip(indices, swapped, strict=True):
        kept = torch.isin(after, before).sum()
        assert kept >= len(before) - round(fraction * len(before))


def test_fuzzy_clusters_have_samples_of_other_classes() -> None:
    for fuzzy, low, high in ((0.0, 0.0, 0.0), (0.2, 0.12, 0.2), (1.0, 0.65, 0.9)):
        partition = split(MultiCluster(fuzzy=fuzzy))
        counts = partition.count_labels(LABELS, 10)
        own = split(MultiCluster()).count_labels(LABELS, 10) > 0
        foreign = float(counts[~own].sum() / counts.sum())
        assert low <= foreign <= high
