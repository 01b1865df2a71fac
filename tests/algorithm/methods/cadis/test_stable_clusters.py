"""Clusters of mean class profiles that hardly change from round to round."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cadis.algorithm import normalize
from cadis.algorithm.methods.cadis import StableClusters
from cadis.algorithm.methods.cadis.cluster_participants import (
    assign_by_profiles,
    cluster_by_profiles,
)
from cadis.algorithm.methods.cadis.hierarchy import Hierarchy
from cadis.algorithm.methods.cadis.stable_clusters import (
    _compute_chance_scores,
    compute_required_confidence,
)
from cadis.algorithm.vectors import compute_cosines
from cadis.rng import derive_generator
from cadis.store import adjusted_rand_index


def make_profiles(
    class_sets: Sequence[Sequence[int]], classes: int, noise: float, seed: int, rounds: int = 1
) -> tuple[Tensor, Tensor]:
    """Return mean profiles of clients with these classes, and their numbers of rounds."""
    clean = torch.full((len(class_sets), classes), -1.0)
    for row, own_classes in zip(clean, class_sets, strict=True):
        row[list(own_classes)] = 2.0
    generator = derive_generator(seed)
    noisy = clean + noise * torch.randn(rounds, *clean.shape, generator=generator)
    centered = normalize(noisy - noisy.mean(dim=2, keepdim=True))
    return centered.mean(dim=0), torch.full((len(class_sets),), rounds)


def compute_labels(profiles: Tensor, rounds: int = 5) -> list[int]:
    """Return the labels of clients after one update, with the same number of rounds for each."""
    clusters = StableClusters().update(profiles, torch.full((len(profiles),), rounds))
    return clusters.predict(profiles).tolist()


def test_update_by_hand() -> None:
    """Two clusters of two clients; profiles are equal within a cluster, else orthogonal.

    Two clusters: the gap of the eigenvalues 1, 1, 0, 0 is 1, and all silhouettes are (1 - 0) / 1.
    Three clusters: the gap is 0. Two silhouettes are 1, those of the clients alone are 0.
    The scores of shuffled profiles are subtracted.
    """
    profiles, rounds = torch.eye(4)[[0, 1, 0, 1]], torch.full((4,), 10)
    scores = torch.tensor([(1 + 1) / 2, (0 + 2 / 4) / 2])
    clusters = StableClusters().update(profiles, rounds)
    chance = _compute_chance_scores(profiles, seed=40)
    assert clusters.excesses[0, :3].tolist() == pytest.approx([*(scores - chance).tolist(), 0])
    assert torch.equal(clusters.centers, torch.eye(4)[:2])
    assert clusters.cut.level == pytest.approx(0.5)  # between similarities 0 and 1
    assert clusters.cut.confidence == pytest.approx(1 - float(chance[0]))
    # three such rounds, then rounds in which all clients are identical: the median becomes 0
    for _ in range(2):
        clusters = clusters.update(profiles, rounds)
    for expected in [2, 2, 1, 1]:
        clusters = clusters.update(profiles[[0] * 4], rounds)
        assert len(clusters.centers) == expected


def test_chance_scores_are_those_of_shuffled_classes() -> None:
    """Shuffling does not change profiles in which all clients have the same value for a class."""
    mean, _ = make_profiles([[0, 1]] * 6 + [[2, 3]] * 5, 10, 0.5, 0)
    chance = _compute_chance_scores(mean, seed=1)
    assert torch.equal(_compute_chance_scores(mean.flip(0), seed=1), chance)
    assert not torch.equal(_compute_chance_scores(mean, seed=2), chance)
    similarity = compute_cosines(normalize(mean.double()))
    scores = Hierarchy.build(similarity, 64).compute_scores(similarity, normalize(mean.double()))
    assert chance.max() < 0.4 < scores[0]
    assert _compute_chance_scores(mean[[0] * 4], seed=1).tolist() == pytest.approx([0, 0])


def test_required_confidence_by_hand() -> None:
    rounds = torch.tensor([1, 3] * 5)  # two on average
    expected = 0.13 + 1 / 10 + 0.05 / 2
    assert compute_required_confidence(rounds, num_classes=10) == pytest.approx(expected)
    assert compute_required_confidence(rounds, num_classes=3) == 0.75
    expected = 0.13 + 1 / 2 + 0.05 / 20  # later rounds have a smaller weight
    assert compute_required_confidence(torch.tensor([20, 90]), 10) == pytest.approx(expected)


CLUSTERED = {
    **{
        f"{m} of unequal size": [[2 * n, 2 * n + 1] for n in range(m) for _ in range(3 + 2 * n)]
        for m in (2, 3, 5, 10, 20)
    },
    "ten that share a class": [[n, (n + 1) % 10] for n in range(10) for _ in range(8)],
    "ten clients, of which three are alone": [[0, 1]] * 7 + [[2, 3], [4, 5], [6, 7]],
}
"""The classes of each client."""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CLUSTERED)
def test_clusters_are_found(case: str, seed: int) -> None:
    class_sets = CLUSTERED[case]
    classes = 10 if "alone" in case else max(4, 1 + max(map(max, class_sets)))
    mean, count = make_profiles(class_sets, classes, 0.3, seed)
    clusters = StableClusters().update(mean, count)
    names = sorted(set(map(tuple, class_sets)))
    truth = [names.index(tuple(own_classes)) for own_classes in class_sets]
    assert adjusted_rand_index(truth, clusters.predict(mean).tolist()) > 0.98, clusters.cut
    assert clusters.cut.confidence > compute_required_confidence(count, classes)


def test_overlapping_clusters_are_found_though_some_clients_lie_between() -> None:
    """Three clusters; the classes of each client are a mixture, mostly of its cluster."""
    generator = np.random.default_rng(0)
    truth = [0] * 20 + [1] * 15 + [2] * 10
    shares = generator.dirichlet([0.3] * 3, size=45) * 0.4
    shares[range(45), truth] += 0.6
    clean = torch.eye(3).repeat_interleave(3, dim=1)  # three classes for each cluster
    mean = torch.tensor(shares, dtype=torch.float32) @ clean
    mean = normalize(mean - mean.mean(dim=1, keepdim=True))
    assert adjusted_rand_index(truth, compute_labels(mean)) > 0.9


@pytest.mark.parametrize("classes", [2, 3, 4, 10, 100])
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("clients", [4, 10, 60])
def test_random_profiles_form_one_cluster(classes: int, rounds: int, clients: int) -> None:
    found = 0
    for seed in range(20):
        mean, count = make_profiles([[]] * clients, classes, 100.0, seed, rounds)
        found += len(StableClusters().update(mean, count).centers) > 1
    assert found <= (1 if clients == 60 else 4)


def test_mixtures_of_classes_form_one_cluster() -> None:
    shares = np.random.default_rng(0).dirichlet([0.8] * 10, size=100)
    mean = normalize(torch.tensor(np.sqrt(shares), dtype=torch.float32))
    mean = normalize(mean - mean.mean(dim=1, keepdim=True))
    assert set(compute_labels(mean)) == {0}


@given(st.integers(1, 12), st.integers(2, 12), st.integers(1, 30))
def test_identical_clients_form_one_cluster(clients: int, classes: int, rounds: int) -> None:
    profile = torch.randn(classes, generator=derive_generator(clients))
    assert set(compute_labels(normalize(profile).expand(clients, -1), rounds)) == {0}
    assert set(compute_labels(torch.zeros(clients, classes), rounds)) == {0}


def test_two_classes_are_separated_after_repeated_rounds() -> None:
    class_sets = [[0]] * 14 + [[1]] * 6
    once, count = make_profiles(class_sets, 2, 0.3, 0)
    assert StableClusters().update(once, count).predict(once).unique().tolist() == [0]
    often, _ = make_profiles(class_sets, 2, 0.3, 0, rounds=4)
    assert compute_labels(often, rounds=4) == [0] * 14 + [1] * 6


@given(st.permutations(range(14)), st.integers(0, 100))
def test_order_of_clients_does_not_matter(order: list[int], seed: int) -> None:
    class_sets = [[0, 1]] * 6 + [[2, 3]] * 5 + [[4, 5]] * 3
    mean, count = make_profiles(class_sets, 10, 0.8, seed, rounds=3)
    before = StableClusters().update(mean, count)
    permuted = StableClusters().update(mean[order], count[order])
    labels, others = before.predict(mean[order]), permuted.predict(mean[order])
    assert adjusted_rand_index(labels.tolist(), others.tolist()) == pytest.approx(1)
    assert permuted.cut.confidence == pytest.approx(before.cut.confidence)
    # labels of the next round do not depend on the order, since clusters keep their labels
    again = before.update(mean[order], count[order])
    assert again.predict(mean).tolist() == before.predict(mean).tolist()


def test_labels_are_kept_if_the_number_of_clusters_grows() -> None:
    class_sets = [[0, 1]] * 8 + [[2, 3]] * 6 + [[4, 5]] * 4 + [[6, 7]] * 3
    mean, count = make_profiles(class_sets, 10, 0.2, 0, rounds=5)
    clusters = StableClusters().update(mean[:18], count[:18])  # without the last cluster
    assert clusters.predict(mean[:18]).tolist() == [0] * 8 + [1] * 6 + [2] * 4
    for _ in range(8):
        clusters = clusters.update(mean, count)
    assert clusters.predict(mean).tolist() == [0] * 8 + [1] * 6 + [2] * 4 + [3] * 3


def test_a_single_unusual_round_changes_nothing() -> None:
    class_sets = [[0, 1]] * 8 + [[2, 3]] * 6 + [[4, 5]] * 4
    mean, count = make_profiles(class_sets, 10, 0.2, 0, rounds=5)
    clusters = StableClusters()
    for _ in range(6):
        clusters = clusters.update(mean, count)
    odd, _ = make_profiles(class_sets, 10, 1.5, 1)
    after = clusters.update(0.5 * mean + 0.5 * odd, count)
    assert after.predict(mean).tolist() == clusters.predict(mean).tolist()


def test_checkpoint_restores_all_state() -> None:
    mean, count = make_profiles([[0, 1]] * 7 + [[2, 3]] * 3, 10, 0.4, 0, rounds=3)
    clusters = StableClusters().update(mean, count)
    restored = StableClusters.from_tensors(clusters.to_tensors())
    assert restored.cut == clusters.cut
    new, _ = make_profiles([[0, 1]] * 7 + [[2, 3]] * 3, 10, 0.4, 1, rounds=3)
    expected, found = clusters.update(new, count), restored.update(new, count)
    for name, tensor in expected.to_tensors().items():
        assert torch.equal(found.to_tensors()[name], tensor), name
    empty = StableClusters.from_tensors({})
    assert (len(empty.centers), len(empty.excesses)) == (0, 0)


def test_many_clients_are_assigned_to_the_nearest_center() -> None:
    """Only some of the 600 clients are clustered."""
    profiles, _ = make_profiles([[n // 200, 5 + n // 200] for n in range(600)], 10, 0.2, 0)
    clients = list(range(600))
    clusters = cluster_by_profiles(profiles, clients, {}, None)
    truth = [n // 200 for n in range(600)]
    assert adjusted_rand_index(truth, clusters.labels.tolist()) == 1
    labels = assign_by_profiles([*clients, 600], clusters.tensors).tolist()
    assert labels == [*clusters.labels.tolist(), -1]


def test_a_new_client_is_assigned_by_its_first_profile() -> None:
    mean, count = make_profiles([[0, 1]] * 7 + [[2, 3]] * 3, 10, 0.2, 0)
    clusters = StableClusters().update(mean, count)
    new_profiles, _ = make_profiles([[2, 3], [0, 1]], 10, 0.2, 9)
    assert clusters.predict(new_profiles).tolist() == [1, 0]


@pytest.mark.parametrize("clients", [1, 2, 3])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_few_clients_with_few_classes(clients: int, classes: int) -> None:
    profiles = normalize(torch.randn(clients, classes, generator=derive_generator(0)))
    profiles[0] = 0  # a client whose update is zero
    tensors: dict[str, Tensor] = {}
    for _ in range(12):
        clusters = cluster_by_profiles(profiles, list(range(clients)), tensors, None)
        tensors = dict(clusters.tensors)
        assert len(clusters.labels) == clients
