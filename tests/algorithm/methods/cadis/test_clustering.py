"""Clusters: by a threshold as in the paper, and without one."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from cadis.algorithm import unit
from cadis.algorithm.methods.cadis import ClientProfiles
from cadis.algorithm.methods.cadis.cluster_participants import PairRule, group_by_profiles
from cadis.algorithm.methods.cadis.clustering import (
    Cut,
    average_linkage,
    cluster,
    contrast_cut,
    found_clusters,
    repeatability,
    rescale,
    threshold_at,
)
from cadis.rng import generator_for
from cadis.store import agreement
from cadis.types import ClientId, client_keys


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
    assert cluster(torch.zeros(0, 0), 0.5).tolist() == []


def test_q_matrix_by_hand() -> None:
    q = rescale(torch.tensor([[1.0, 0.6, 0.2], [0.6, 1.0, 0.9], [0.2, 0.9, 1.0]]))
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


def test_strangers_do_not_become_a_cluster_by_rescaling_and_equals_are_alike() -> None:
    similarity = torch.full((4, 4), 0.1).fill_diagonal_(1)
    assert cluster(rescale(similarity), 0.5).tolist() == [0, 1, 2, 3]
    assert cluster(rescale(torch.ones(3, 3)), 1.0).tolist() == [0, 0, 0]


@given(st.integers(2, 8), st.integers(0, 10**6))
def test_rescaling_twice_changes_nothing(n: int, seed: int) -> None:
    similarity = torch.rand(n, n, generator=torch.Generator().manual_seed(seed)).double()
    similarity = ((similarity + similarity.T) / 2).fill_diagonal_(1)
    once = rescale(similarity)
    torch.testing.assert_close(rescale(once, torch.ones(n, n, dtype=torch.bool)), once)


def test_threshold_grows_and_stops_even_beyond_all_numbers() -> None:
    assert threshold_at(0, 0.8, 0.1, 0.9) == 0.8
    assert threshold_at(1, 0.8, 0.1, 0.9) == pytest.approx(0.8 * 1.1)
    assert threshold_at(2, 0.8, 0.1, 0.9) == 0.9
    assert threshold_at(1000, 0.8, 0.0, 0.9) == 0.8
    assert threshold_at(5000, 0.7, 1.0, 0.985) == 0.985
    assert threshold_at(3, 0.7, 1e308, 0.985) == 0.985
    assert threshold_at(5000, 0.0, 1.0, 0.985) == 0


def test_the_contrast_by_hand() -> None:
    """Two clusters of two and three; similarities 0.95 within, 0.7 for one pair between, else 0."""
    similarity = torch.zeros(5, 5)
    similarity[:2, :2], similarity[2:, 2:] = 0.95, 0.95
    similarity[1, 2] = similarity[2, 1] = 0.7
    cut = contrast_cut(similarity)
    # above 0.7 to 0.85 there are 4 pairs, and one below down to 2x - 1 = 0.4 to 0.7;
    # from 0.86 on, none is: 2 * 0.86 - 1 = 0.72. Below 0.7 there are 5 above and none below,
    # while 2x - 1 > 0, which is from x = 0.51 on.
    assert cut.confidence == pytest.approx((5 - 0) / (5 + 0 + 5 / 2))
    assert 0.5 < cut.at < 0.52


def test_without_pairs_there_is_no_confidence() -> None:
    assert contrast_cut(torch.ones(1, 1)).confidence == 0
    assert Cut(0.6, 0.4).if_confident() == Cut(-1.0, 0.4)
    assert Cut(0.6, -0.2).if_confident() == Cut(-1.0, 0.0)
    assert Cut(0.6, 0.6).if_confident() == Cut(0.6, 0.6)


@given(st.integers(2, 24), st.floats(-0.9, 0.9), st.integers(0, 10_000))
def test_joining_is_average_linkage(number: int, cut: float, seed: int) -> None:
    """Against scipy, which joins one pair at a time."""
    vectors = unit(torch.randn(number, 4, generator=generator_for(seed), dtype=torch.float64))
    similarity = (vectors @ vectors.T).clamp(-1, 1).fill_diagonal_(1)
    found = average_linkage(similarity, cut)
    distances = squareform((1 - similarity).numpy(), checks=False)
    tree = linkage(distances, "average")
    if np.abs(tree[:, 2] - (1 - cut)).min() < 1e-9:
        return  # whether a pair at the very cut is joined is up to rounding
    assert agreement(fcluster(tree, 1 - cut, "distance").tolist(), found.tolist()) == 1
    firsts = [found.tolist().index(label) for label in range(int(found.max()) + 1)]
    assert firsts == sorted(firsts)  # numbered in order of appearance


def test_everybody_alike_is_joined_at_once_and_nobody_below_the_cut() -> None:
    assert average_linkage(torch.ones(6, 6), 0.9).tolist() == [0] * 6
    assert average_linkage(torch.eye(4), 0.1).tolist() == [0, 1, 2, 3]
    assert average_linkage(torch.full((3, 3), -0.4).fill_diagonal_(1), -1).tolist() == [0, 0, 0]
    assert average_linkage(torch.zeros(0, 0), 0.5).tolist() == []


def test_repeatability_is_the_mean_cosine_between_rounds() -> None:
    rounds = unit(torch.randn(3, 6, 5, generator=generator_for(0), dtype=torch.float64))
    cosines = [
        float(one @ other)
        for client in rounds
        for place, one in enumerate(client)
        for other in client[:place]
    ]
    found = repeatability(rounds.mean(dim=1), torch.tensor([6, 6, 6]))
    assert found == pytest.approx(max(0, sum(cosines) / len(cosines)), abs=0.15)
    same = rounds[:, :1].expand(3, 6, 5).mean(dim=1)
    assert repeatability(same, torch.tensor([6, 6, 6])) == pytest.approx(1)
    assert repeatability(same, torch.tensor([1, 1, 2])) is None  # too few were seen twice


def profiles_for(
    owned: Sequence[Sequence[int]], classes: int, noise: float, seed: int, rounds: int = 1
) -> tuple[Tensor, Tensor]:
    """Mean profiles of clients that hold these classes, and counts of their rounds."""
    clean = torch.full((len(owned), classes), -1.0)
    for row, own in zip(clean, owned, strict=True):
        row[list(own)] = 2.0
    generator = generator_for(seed)
    noisy = clean + noise * torch.randn(rounds, *clean.shape, generator=generator)
    centred = unit(noisy - noisy.mean(dim=2, keepdim=True))
    return centred.mean(dim=0), torch.full((len(owned),), rounds)


PAIRS = [[a, b] for a in range(10) for b in range(a)]
CLUSTERED = {
    **{
        f"{m} of unequal size": [[2 * n, 2 * n + 1] for n in range(m) for _ in range(3 + 2 * n)]
        for m in (2, 3, 5, 10, 20)
    },
    "ten that share a class": [[n, (n + 1) % 10] for n in range(10) for _ in range(8)],
    "one, and loners who share classes with it": [PAIRS[0]] * 60 + PAIRS[1:41],
}
"""The classes of each client."""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CLUSTERED)
def test_clusters_are_found(case: str, seed: int) -> None:
    owned, noise = CLUSTERED[case], 0.2 if "loners" in case else 0.3
    mean, count = profiles_for(owned, max(4, 1 + max(max(own) for own in owned)), noise, seed)
    found = found_clusters(mean, count)
    kinds = [sorted({tuple(own) for own in owned}).index(tuple(own)) for own in owned]
    assert agreement(kinds, found.of(mean).tolist()) > 0.98, found.cut
    assert found.cut.confidence > 0.5


@pytest.mark.parametrize("classes", [2, 3, 4, 10, 100])
@pytest.mark.parametrize("rounds", [1, 3])
def test_none_where_there_are_none(classes: int, rounds: int) -> None:
    for seed in range(5):
        mean, count = profiles_for([[]] * 60, classes, 100.0, seed, rounds)
        found = found_clusters(mean, count)
        assert found.of(mean).unique().tolist() == [0]
        assert found.cut.confidence < 0.5


def test_none_where_clients_are_mixtures() -> None:
    shares = np.random.default_rng(0).dirichlet([0.5] * 10, size=100)
    mean = unit(torch.tensor(shares - 0.1, dtype=torch.float32))
    assert found_clusters(mean, torch.ones(100, dtype=torch.int32)).cut.at == -1


def test_one_cluster_where_all_are_alike() -> None:
    mean, count = profiles_for([[0, 1]] * 30, 10, 0.1, 0)
    assert found_clusters(mean, count).of(mean).unique().tolist() == [0]


def test_two_classes_are_told_apart_once_profiles_repeat() -> None:
    owned = [[0]] * 14 + [[1]] * 6
    once, count = profiles_for(owned, 2, 0.3, 0)
    assert found_clusters(once, count).of(once).unique().tolist() == [0]
    often, count = profiles_for(owned, 2, 0.3, 0, rounds=4)
    assert agreement([0] * 14 + [1] * 6, found_clusters(often, count).of(often).tolist()) == 1


def test_a_threshold_cuts_the_q_matrix_as_the_paper_does() -> None:
    mean, count = profiles_for([[0], [0], [1]], 4, 0.01, 0)
    assert found_clusters(mean, count, threshold=0.7).of(mean).tolist() == [0, 0, 1]
    assert found_clusters(mean, count, threshold=0.0).of(mean).tolist() == [0, 0, 0]


def test_a_newcomer_is_placed_by_its_first_profile() -> None:
    owned = [[0, 1]] * 7 + [[2, 3]] * 3
    mean, count = profiles_for(owned, 10, 0.2, 0)
    found = found_clusters(mean, count)
    newcomers, _ = profiles_for([[2, 3], [0, 1]], 10, 0.2, 9)
    assert found.of(newcomers).tolist() == [int(found.of(mean)[-1]), int(found.of(mean)[0])]


def test_newcomers_of_an_odd_round_are_known_by_those_seen_before() -> None:
    """In one round the model is far off, and everybody's profile is, in the same way."""
    clear = unit(torch.tensor([[1.0, 1.0, -1.0, -1.0], [-1.0, -1.0, 1.0, 1.0]]))
    usual = clear[[0] * 6 + [1] * 4]
    first = group_by_profiles(usual, list(range(10)), {}, None)
    second = group_by_profiles(usual, list(range(10)), first.memory, None)
    odd = unit(torch.tensor([[1.0, -0.8, -0.1, -0.1], [-1.0, -1.0, 1.0, 1.0]]))
    clients: list[ClientId] = [0, 1, "new", 9]
    third = group_by_profiles(odd[[0, 0, 0, 1]], clients, second.memory, None)
    assert third.labels.tolist() == [0, 0, 0, 1]
    mean, count = ClientProfiles.from_tensors(third.memory).of(client_keys(clients), 4)
    assert count.tolist() == [3, 3, 1, 3]
    # the mean of two clients with three rounds each (two usual, one odd) and its own odd round
    expected = (6 * (2 * clear[0] + odd[0]) / 3 + odd[0]) / 7
    torch.testing.assert_close(mean[2], expected, rtol=0, atol=2e-3)
    torch.testing.assert_close(mean[0], (2 * clear[0] + odd[0]) / 3, rtol=0, atol=2e-3)


def test_who_moved_alone_stays_as_it_is() -> None:
    profiles = unit(torch.randn(4, 12, generator=torch.Generator().manual_seed(0)))
    memory = group_by_profiles(profiles, [1, 2, 3, 4], {}, None).memory
    mean, _ = ClientProfiles.from_tensors(memory).of(client_keys([1, 2, 3, 4]), 12)
    torch.testing.assert_close(mean, profiles, rtol=0, atol=1e-3)


@pytest.mark.parametrize("seed", range(10))
def test_the_sampler_sees_the_clusters_that_the_weights_use(seed: int) -> None:
    """Pairs that never met are unlike in both places, whatever the sign of the other cosines."""
    rule = PairRule(threshold=None, among_all=True, transitive="off", gamma=0.0)
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(2, 3, generator=generator).repeat_interleave(3, dim=0)
    changes, memory = centres + 0.2 * torch.randn(6, 3, generator=generator), dict[str, Tensor]()
    for clients in ([0, 1, 3], [1, 2, 4], [0, 3, 5]):
        grouping = rule.group(changes[clients], clients, memory, generator)
        memory = dict(grouping.memory)
        assert rule.clusters(clients, memory).tolist() == grouping.labels.tolist()
