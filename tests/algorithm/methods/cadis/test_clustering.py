import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cadis.algorithm.methods.cadis import cluster, rescale, threshold_at


def components_by_search(adjacent: list[list[bool]]) -> list[int]:
    """Connected components by depth-first search, numbered in order of first appearance."""
    labels = [-1] * len(adjacent)
    number = 0
    for start in range(len(adjacent)):
        if labels[start] >= 0:
            continue
        todo = [start]
        while todo:
            node = todo.pop()
            if labels[node] < 0:
                labels[node] = number
                todo += [other for other, edge in enumerate(adjacent[node]) if edge]
        number += 1
    return labels


@given(st.integers(1, 12), st.floats(0, 1), st.integers(0, 10**6))
def test_components_match_depth_first_search(n: int, threshold: float, seed: int) -> None:
    q = torch.rand(n, n, generator=torch.Generator().manual_seed(seed))
    q = torch.maximum(q, q.T).fill_diagonal_(1)
    assert cluster(q, threshold).tolist() == components_by_search((q >= threshold).tolist())


def test_neighbours_of_neighbours_are_one_cluster() -> None:
    q = torch.tensor(
        [[1.0, 0.9, 0.0, 0.0], [0.9, 1.0, 0.9, 0.0], [0.0, 0.9, 1.0, 0.0], [0, 0, 0, 1]]
    )
    assert cluster(q, 0.9).tolist() == [0, 0, 0, 1]
    assert cluster(q, 0.91).tolist() == [0, 1, 2, 3]


def test_no_clients_no_clusters() -> None:
    assert cluster(torch.zeros(0, 0), 0.5).tolist() == []


def test_q_matrix_by_hand() -> None:
    similarity = torch.tensor([[1.0, 0.6], [0.6, 1.0]])
    similarity = torch.tensor([[1.0, 0.6, 0.2], [0.6, 1.0, 0.9], [0.2, 0.9, 1.0]])
    known = torch.ones(3, 3, dtype=torch.bool)
    q = rescale(similarity, known)
    assert q[0, 1].item() == pytest.approx((0.6 - 0.2) / (1 - 0.2))
    assert q[0, 2] == 0
    assert q.diagonal().tolist() == [1, 1, 1]


def test_unknown_pairs_neither_scale_nor_join() -> None:
    similarity = torch.tensor([[1.0, 0.5, -9.0], [0.5, 1.0, 0.0], [-9.0, 0.0, 1.0]])
    known = torch.tensor([[1, 1, 0], [1, 1, 1], [0, 1, 1]]).bool()
    q = rescale(similarity, known)
    assert q[0, 1].item() == pytest.approx(0.5)
    assert q[0, 2].isnan()
    assert cluster(q, 0.0).tolist() == [0, 0, 0]  # joined through client 1 alone
    assert cluster(torch.tensor([[1.0, torch.nan], [torch.nan, 1.0]]), 0.0).tolist() == [0, 1]


def test_strangers_do_not_become_a_cluster_by_rescaling() -> None:
    similarity = torch.full((4, 4), 0.1).fill_diagonal_(1)
    q = rescale(similarity, torch.ones(4, 4, dtype=torch.bool))
    assert cluster(q, 0.5).tolist() == [0, 1, 2, 3]


def test_all_equal_means_all_alike() -> None:
    q = rescale(torch.ones(3, 3), torch.ones(3, 3, dtype=torch.bool))
    assert cluster(q, 1.0).tolist() == [0, 0, 0]


@given(st.integers(2, 8), st.integers(0, 10**6))
def test_rescaling_twice_changes_nothing(n: int, seed: int) -> None:
    similarity = torch.rand(n, n, generator=torch.Generator().manual_seed(seed)).double()
    similarity = ((similarity + similarity.T) / 2).fill_diagonal_(1)
    known = torch.ones(n, n, dtype=torch.bool)
    once = rescale(similarity, known)
    torch.testing.assert_close(rescale(once, known), once)


def test_threshold_grows_and_stops() -> None:
    assert threshold_at(0, 0.8, 0.1, 0.9) == 0.8
    assert threshold_at(1, 0.8, 0.1, 0.9) == pytest.approx(0.8 * 1.1)
    assert threshold_at(2, 0.8, 0.1, 0.9) == 0.9
    assert threshold_at(1000, 0.8, 0.0, 0.9) == 0.8


def test_a_threshold_that_grows_beyond_all_numbers_stays_at_its_maximum() -> None:
    assert threshold_at(5000, 0.7, 1.0, 0.985) == 0.985
    assert threshold_at(3, 0.7, 1e308, 0.985) == 0.985
    assert threshold_at(5000, 0.0, 1.0, 0.985) == 0
