"""Clusters without a threshold."""

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
from cadis.algorithm.methods.cadis import Cut, average_linkage, contrast_cut, found_clusters
from cadis.algorithm.methods.cadis.auto_clusters import repeatability
from cadis.rng import generator_for
from cadis.store import agreement


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
    noisy = [
        _centred(clean + noise * torch.randn(clean.shape, generator=generator))
        for _ in range(rounds)
    ]
    return torch.stack(noisy).mean(dim=0), torch.full((len(owned),), rounds)


def _centred(profiles: Tensor) -> Tensor:
    return unit(profiles - profiles.mean(dim=1, keepdim=True))


def check(owned: Sequence[Sequence[int]], classes: int, noise: float, seed: int) -> None:
    mean, count = profiles_for(owned, classes, noise, seed)
    found = found_clusters(mean, count)
    kinds = [sorted({tuple(own) for own in owned}).index(tuple(own)) for own in owned]
    assert agreement(kinds, found.of(mean).tolist()) > 0.98, found.cut
    assert found.cut.confidence > 0.5


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("number", [2, 3, 5, 10, 20])
def test_disjoint_clusters_of_unequal_size(number: int, seed: int) -> None:
    classes = 2 * number
    owned = [[2 * n, 2 * n + 1] for n in range(number) for _ in range(3 + 2 * n)]
    check(owned, max(classes, 4), 0.3, seed)


@pytest.mark.parametrize("seed", range(3))
def test_clusters_that_share_a_class(seed: int) -> None:
    owned = [[n, (n + 1) % 10] for n in range(10) for _ in range(8)]
    check(owned, 10, 0.3, seed)


@pytest.mark.parametrize("seed", range(3))
def test_one_cluster_and_loners_who_share_classes_with_it(seed: int) -> None:
    pairs = [[a, b] for a in range(10) for b in range(a)]
    check([pairs[0]] * 60 + pairs[1:41], 10, 0.2, seed)


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
