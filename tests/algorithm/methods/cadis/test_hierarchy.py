"""Hierarchical clusterings and their scores."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score

from cadis.algorithm import compute_cosines, normalize
from cadis.algorithm.methods.cadis import average_linkage
from cadis.algorithm.methods.cadis.hierarchy import (
    Hierarchy,
    compute_silhouettes,
    compute_spectral_gaps,
)
from cadis.rng import derive_generator


def test_levels_and_labels_by_hand() -> None:
    """0 and 2 are merged at 0.9, then 1 and 3 at 0.8, and all at the mean of the others."""
    similarity = torch.eye(4, dtype=torch.float64)
    for (i, j), value in {(0, 2): 0.9, (1, 3): 0.8, (0, 1): 0.1, (2, 3): 0.3}.items():
        similarity[i, j] = similarity[j, i] = value
    hierarchy = Hierarchy.build(similarity, max_clusters=9)
    assert hierarchy.levels.tolist() == pytest.approx([0.9, 0.8, (0.1 + 0.3 + 0 + 0) / 4])
    assert hierarchy.labels.tolist() == [[0, 1, 0, 1], [0, 1, 0, 2]]
    assert hierarchy.get_labels(1).tolist() == [0, 0, 0, 0]
    assert hierarchy.get_level(1) == -1
    assert hierarchy.get_level(2) == pytest.approx((0.8 + 0.1) / 2)
    assert hierarchy.get_level(3) == pytest.approx((0.9 + 0.8) / 2)
    assert len(Hierarchy.build(similarity, max_clusters=2).labels) == 1
    assert Hierarchy.build(torch.ones(1, 1), max_clusters=9).get_labels(1).tolist() == [0]


@given(st.integers(3, 20), st.integers(0, 1000))
def test_the_level_of_a_clustering_gives_its_labels(clients: int, seed: int) -> None:
    vectors = torch.randn(clients, 5, generator=derive_generator(seed), dtype=torch.float64)
    similarity = compute_cosines(normalize(vectors))
    hierarchy = Hierarchy.build(similarity, max_clusters=64)
    for number in range(2, clients):
        labels = average_linkage(similarity, hierarchy.get_level(number))
        assert labels.tolist() == hierarchy.get_labels(number).tolist()


@given(st.integers(4, 20), st.integers(0, 1000))
def test_silhouette_matches_scikit_learn(clients: int, seed: int) -> None:
    generator = derive_generator(seed)
    vectors = torch.randn(clients, 5, generator=generator, dtype=torch.float64)
    similarity = compute_cosines(normalize(vectors))
    clusterings = torch.stack([torch.arange(clients) % 3, torch.arange(clients) // 2 % 2])
    expected = [
        silhouette_score((1 - similarity).numpy(), labels.numpy(), metric="precomputed")
        for labels in clusterings
    ]
    assert compute_silhouettes(similarity, clusterings).tolist() == pytest.approx(expected)


def test_silhouette_by_hand() -> None:
    """Similarities are 0.8 within a cluster of two and 0.2 otherwise; the third is alone."""
    similarity = torch.tensor([[1, 0.8, 0.2], [0.8, 1, 0.2], [0.2, 0.2, 1]], dtype=torch.float64)
    expected = (2 * (0.8 - 0.2) / 0.8 + 0) / 3
    labels = torch.tensor([[0, 0, 1]])
    assert compute_silhouettes(similarity, labels).tolist() == pytest.approx([expected])
    tiny = 1 - 1e-9 * (1 - similarity)  # differences due to rounding do not count
    assert compute_silhouettes(tiny, labels).tolist() == pytest.approx([0], abs=1e-7)


def test_spectral_gaps_by_hand() -> None:
    """The eigenvalues of two clients with similarity s, each of degree 1 + s, are 1 and below."""
    s = 0.25
    kernel = torch.tensor([[1, s], [s, 1]], dtype=torch.float64)
    assert compute_spectral_gaps(kernel).tolist() == pytest.approx([1 - (1 - s) / (1 + s)])


@given(st.lists(st.integers(1, 6), min_size=2, max_size=6))
def test_separate_clusters_have_the_largest_gap(sizes: list[int]) -> None:
    blocks = [np.ones((size, size)) for size in sizes]
    kernel = torch.block_diag(*map(torch.tensor, blocks))
    gaps = compute_spectral_gaps(kernel)
    if sum(sizes) > len(sizes):
        assert int(gaps.argmax()) + 1 == len(sizes)
        assert float(gaps.max()) == pytest.approx(1)
