import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cadis.core import CadisError, generator_for
from cadis.partition import multi_cluster

LABELS = torch.arange(2000) % 10


@given(
    clients=st.integers(6, 60),
    ratio=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    seed=st.integers(0, 10**6),
)
def test_every_partition_is_what_it_says(clients: int, ratio: list[int], seed: int) -> None:
    partition = multi_cluster(LABELS, clients, ratio, generator_for(seed))
    everything = torch.cat(partition.indices)
    assert len(partition.indices) == clients
    assert len(everything.unique()) == len(everything)  # no example belongs to two clients
    owned = [set(LABELS[indices].tolist()) for indices in partition.indices]
    for i in range(clients):
        counts = torch.bincount(LABELS[partition.indices[i]], minlength=10)
        present = counts[counts > 0]
        assert len(present)
        assert (present == present[0]).all()  # the label distribution of its cluster
        for j in range(i):
            alike = partition.cluster_of_client[i] == partition.cluster_of_client[j]
            assert owned[i] == owned[j] if alike else not owned[i] & owned[j]
    assert set.union(*owned) == set(range(10))


def test_number_of_clients_follows_the_ratio() -> None:
    partition = multi_cluster(LABELS, 20, (3, 3, 2, 1, 1), generator_for(0))
    assert torch.bincount(partition.cluster_of_client).tolist() == [6, 6, 4, 2, 2]
    partition = multi_cluster(LABELS, 100, (3, 3, 2, 1, 1), generator_for(0))
    assert torch.bincount(partition.cluster_of_client).tolist() == [30, 30, 20, 10, 10]
    partition = multi_cluster(LABELS, 7, (100, 1, 1), generator_for(0))
    assert torch.bincount(partition.cluster_of_client).tolist() == [5, 1, 1]


def test_sizes_are_unbalanced_but_not_by_cluster() -> None:
    labels = torch.arange(60_000) % 10
    partition = multi_cluster(labels, 100, (3, 3, 2, 1, 1), generator_for(1))
    sizes = torch.tensor([float(len(indices)) for indices in partition.indices])
    assert 0.1 < sizes.std() / sizes.mean() < 0.3
    big, rare = (sizes[partition.cluster_of_client == number].mean() for number in (0, 4))
    assert 0.8 < big / rare < 1.25
    biggest = sizes[partition.cluster_of_client < 2].view(2, 30).sum(dim=1)
    assert biggest.max() > 0.97 * 12_000  # as large as the data allow


def test_seeded() -> None:
    first, again, other = (
        torch.cat(multi_cluster(LABELS, 20, (2, 1), generator_for(seed)).indices)
        for seed in (5, 5, 6)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("labels", "clients", "ratio", "sentence"),
    [
        (LABELS, 20, [1] * 11, "11 clusters cannot own distinct classes of 10"),
        (LABELS, 3, [1, 1, 1, 1], "3 clients cannot form 4 clusters"),
        (LABELS[:100], 300, [1, 1], "300 clients are too many for 100 samples"),
    ],
)
def test_impossible_requests(
    labels: torch.Tensor, clients: int, ratio: list[int], sentence: str
) -> None:
    with pytest.raises(CadisError, match=sentence):
        multi_cluster(labels, clients, ratio, generator_for(0))
