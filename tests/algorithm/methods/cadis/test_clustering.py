"""Clusters by a threshold as in the paper, and without a threshold."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from cadis.algorithm import normalize
from cadis.algorithm.methods.cadis import ClientProfiles
from cadis.algorithm.methods.cadis.cluster_participants import PairClustering, cluster_by_profiles
from cadis.algorithm.methods.cadis.clustering import (
    Cut,
    average_linkage,
    cluster_by_threshold,
    compute_q_matrix,
    compute_repeatability,
    compute_threshold,
    find_contrast_cut,
    find_threshold_centers,
)
from cadis.rng import derive_generator
from cadis.store import adjusted_rand_index
from cadis.types import ClientId, compute_client_keys


def find_components_by_search(adjacent: list[list[bool]]) -> list[int]:
    """Return connected components by depth-first search, in order of first appearance."""
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
    assert cluster_by_threshold(q, threshold).tolist() == find_components_by_search(
        (q >= threshold).tolist()
    )


def test_neighbors_of_neighbors_are_in_one_cluster() -> None:
    q = torch.tensor(
        [[1.0, 0.9, 0.0, 0.0], [0.9, 1.0, 0.9, 0.0], [0.0, 0.9, 1.0, 0.0], [0, 0, 0, 1]]
    )
    assert cluster_by_threshold(q, 0.9).tolist() == [0, 0, 0, 1]
    assert cluster_by_threshold(q, 0.91).tolist() == [0, 1, 2, 3]
    assert cluster_by_threshold(torch.zeros(0, 0), 0.5).tolist() == []


def test_q_matrix_by_hand() -> None:
    q = compute_q_matrix(torch.tensor([[1.0, 0.6, 0.2], [0.6, 1.0, 0.9], [0.2, 0.9, 1.0]]))
    assert q[0, 1].item() == pytest.approx((0.6 - 0.2) / (1 - 0.2))
    assert q[0, 2] == 0
    assert q.diagonal().tolist() == [1, 1, 1]


def test_unknown_pairs_neither_scale_nor_connect() -> None:
    similarity = torch.tensor([[1.0, 0.5, -9.0], [0.5, 1.0, 0.0], [-9.0, 0.0, 1.0]])
    known = torch.tensor([[1, 1, 0], [1, 1, 1], [0, 1, 1]]).bool()
    q = compute_q_matrix(similarity, known)
    assert q[0, 1].item() == pytest.approx(0.5)
    assert q[0, 2].isnan()
    assert cluster_by_threshold(q, 0.0).tolist() == [0, 0, 0]  # connected through client 1 only
    assert cluster_by_threshold(
        torch.tensor([[1.0, torch.nan], [torch.nan, 1.0]]), 0.0
    ).tolist() == [0, 1]


def test_q_matrix_of_equal_similarities() -> None:
    similarity = torch.full((4, 4), 0.1).fill_diagonal_(1)
    assert cluster_by_threshold(compute_q_matrix(similarity), 0.5).tolist() == [0, 1, 2, 3]
    assert cluster_by_threshold(compute_q_matrix(torch.ones(3, 3)), 1.0).tolist() == [0, 0, 0]


@given(st.integers(2, 8), st.integers(0, 10**6))
def test_q_matrix_of_a_q_matrix_is_the_same(n: int, seed: int) -> None:
    similarity = torch.rand(n, n, generator=torch.Generator().manual_seed(seed)).double()
    similarity = ((similarity + similarity.T) / 2).fill_diagonal_(1)
    once = compute_q_matrix(similarity)
    torch.testing.assert_close(compute_q_matrix(once, torch.ones(n, n, dtype=torch.bool)), once)


def test_threshold_grows_to_its_maximum_without_overflow() -> None:
    assert compute_threshold(0, 0.8, 0.1, 0.9) == 0.8
    assert compute_threshold(1, 0.8, 0.1, 0.9) == pytest.approx(0.8 * 1.1)
    assert compute_threshold(2, 0.8, 0.1, 0.9) == 0.9
    assert compute_threshold(1000, 0.8, 0.0, 0.9) == 0.8
    assert compute_threshold(5000, 0.7, 1.0, 0.985) == 0.985
    assert compute_threshold(3, 0.7, 1e308, 0.985) == 0.985
    assert compute_threshold(5000, 0.0, 1.0, 0.985) == 0


def test_contrast_by_hand() -> None:
    """Two clusters of two and three; similarities 0.95 within, 0.7 for one pair between, else 0."""
    similarity = torch.zeros(5, 5)
    similarity[:2, :2], similarity[2:, 2:] = 0.95, 0.95
    similarity[1, 2] = similarity[2, 1] = 0.7
    cut = find_contrast_cut(similarity)
    # above 0.7 to 0.85 there are 4 pairs, and one below down to 2x - 1 = 0.4 to 0.7;
    # from 0.86 on, none is: 2 * 0.86 - 1 = 0.72. Below 0.7 there are 5 above and none below,
    # while 2x - 1 > 0, which is from x = 0.51 on.
    assert cut.confidence == pytest.approx((5 - 0) / (5 + 0 + 5 / 2))
    assert 0.5 < cut.level < 0.52


def test_low_confidence_merges_all_clients() -> None:
    assert find_contrast_cut(torch.ones(1, 1)).confidence == 0
    assert Cut(0.6, 0.4).merge_all_if_uncertain() == Cut(-1.0, 0.4)
    assert Cut(0.6, -0.2).merge_all_if_uncertain() == Cut(-1.0, 0.0)
    assert Cut(0.6, 0.6).merge_all_if_uncertain() == Cut(0.6, 0.6)


@given(st.integers(2, 24), st.floats(-0.9, 0.9), st.integers(0, 10_000))
def test_average_linkage_matches_scipy(number: int, cut: float, seed: int) -> None:
    """SciPy merges one pair at a time."""
    vectors = normalize(
        torch.randn(number, 4, generator=derive_generator(seed), dtype=torch.float64)
    )
    similarity = (vectors @ vectors.T).clamp(-1, 1).fill_diagonal_(1)
    labels = average_linkage(similarity, cut)
    distances = squareform((1 - similarity).numpy(), checks=False)
    tree = linkage(distances, "average")
    if np.abs(tree[:, 2] - (1 - cut)).min() < 1e-9:
        return  # a pair exactly at the cut depends on rounding
    assert adjusted_rand_index(fcluster(tree, 1 - cut, "distance").tolist(), labels.tolist()) == 1
    firsts = [labels.tolist().index(label) for label in range(int(labels.max()) + 1)]
    assert firsts == sorted(firsts)  # in order of first appearance


def test_average_linkage_of_equal_similarities() -> None:
    assert average_linkage(torch.ones(6, 6), 0.9).tolist() == [0] * 6
    assert average_linkage(torch.eye(4), 0.1).tolist() == [0, 1, 2, 3]
    assert average_linkage(torch.full((3, 3), -0.4).fill_diagonal_(1), -1).tolist() == [0, 0, 0]
    assert average_linkage(torch.zeros(0, 0), 0.5).tolist() == []


def test_repeatability_is_the_mean_cosine_between_rounds() -> None:
    rounds = normalize(torch.randn(3, 6, 5, generator=derive_generator(0), dtype=torch.float64))
    cosines = [
        float(one @ other)
        for client in rounds
        for index, one in enumerate(client)
        for other in client[:index]
    ]
    repeatability = compute_repeatability(rounds.mean(dim=1), torch.tensor([6, 6, 6]))
    assert repeatability == pytest.approx(max(0, sum(cosines) / len(cosines)), abs=0.15)
    same = rounds[:, :1].expand(3, 6, 5).mean(dim=1)
    assert compute_repeatability(same, torch.tensor([6, 6, 6])) == pytest.approx(1)
    assert compute_repeatability(same, torch.tensor([1, 1, 2])) is None  # too few repeated rounds


def test_a_threshold_cuts_the_q_matrix() -> None:
    profiles = torch.tensor(
        [[3.0, -1.0, -1.0, -1.0], [3.0, -1.0, -1.0, -1.0], [-1.0, 3.0, -1.0, -1.0]]
    )
    assert len(find_threshold_centers(profiles, 0.0)) == 1
    centers = find_threshold_centers(profiles, 0.7)
    torch.testing.assert_close(centers, normalize(profiles[1:]))


def test_new_clients_get_the_mean_profile_of_similar_clients() -> None:
    """In one round the received model distorts the profiles of all participants."""
    clear = normalize(torch.tensor([[1.0, 1.0, -1.0, -1.0], [-1.0, -1.0, 1.0, 1.0]]))
    usual = clear[[0] * 6 + [1] * 4]
    first = cluster_by_profiles(usual, list(range(10)), {}, None)
    second = cluster_by_profiles(usual, list(range(10)), first.tensors, None)
    odd = normalize(torch.tensor([[1.0, -0.8, -0.1, -0.1], [-1.0, -1.0, 1.0, 1.0]]))
    clients: list[ClientId] = [0, 1, "new", 9]
    third = cluster_by_profiles(odd[[0, 0, 0, 1]], clients, second.tensors, None)
    assert third.labels.tolist() == [0, 0, 0, 1]
    mean, count = ClientProfiles.from_tensors(third.tensors).get(compute_client_keys(clients), 4)
    assert count.tolist() == [3, 3, 1, 3]
    # the mean of two clients with three rounds each (two usual, one odd) and its own odd round
    expected = (6 * (2 * clear[0] + odd[0]) / 3 + odd[0]) / 7
    torch.testing.assert_close(mean[2], expected, rtol=0, atol=2e-3)
    torch.testing.assert_close(mean[0], (2 * clear[0] + odd[0]) / 3, rtol=0, atol=2e-3)


def test_profiles_without_similar_clients_are_not_smoothed() -> None:
    profiles = normalize(torch.randn(4, 12, generator=torch.Generator().manual_seed(0)))
    tensors = cluster_by_profiles(profiles, [1, 2, 3, 4], {}, None).tensors
    mean, _ = ClientProfiles.from_tensors(tensors).get(compute_client_keys([1, 2, 3, 4]), 12)
    torch.testing.assert_close(mean, profiles, rtol=0, atol=1e-3)


@pytest.mark.parametrize("seed", range(10))
def test_sampler_and_weights_use_the_same_clusters(seed: int) -> None:
    """Both treat unknown pairs as dissimilar, whatever the sign of the other cosines."""
    clustering = PairClustering(threshold=None, among_all=True, transitive="off", gamma=0.0)
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(2, 3, generator=generator).repeat_interleave(3, dim=0)
    signatures, tensors = (
        centres + 0.2 * torch.randn(6, 3, generator=generator),
        dict[str, Tensor](),
    )
    for clients in ([0, 1, 3], [1, 2, 4], [0, 3, 5]):
        clusters = clustering.cluster_participants(signatures[clients], clients, tensors, generator)
        tensors = dict(clusters.tensors)
        assert clustering.assign_clients(clients, tensors).tolist() == clusters.labels.tolist()
