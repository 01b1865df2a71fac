import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cadis.algorithm.methods.cadis import SimilarityMatrix, instance_similarity
from cadis.errors import CadisError
from cadis.types import ClientId


def brute_force_cosine(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / (math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b)))


def test_cosine_by_hand() -> None:
    signatures = torch.tensor([[3.0, 4.0], [4.0, 3.0], [-3.0, -4.0]])
    similarity = instance_similarity(signatures)
    assert similarity[0, 1].item() == pytest.approx((3 * 4 + 4 * 3) / (5 * 5))
    assert similarity[0, 2].item() == pytest.approx(-1)


@given(st.integers(2, 7), st.integers(1, 9), st.integers(0, 10**6))
def test_cosine_matches_brute_force(k: int, d: int, seed: int) -> None:
    signatures = torch.randn(k, d, generator=torch.Generator().manual_seed(seed)).double()
    similarity = instance_similarity(signatures)
    for i in range(k):
        assert similarity[i, i] == 1
        for j in range(i):
            expected = brute_force_cosine(signatures[i].tolist(), signatures[j].tolist())
            assert similarity[i, j].item() == pytest.approx(expected, abs=1e-12)
            assert similarity[i, j] == similarity[j, i]


def test_zero_update_is_like_nobody_but_itself() -> None:
    similarity = instance_similarity(torch.tensor([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]]))
    assert similarity.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_cosine_does_not_depend_on_scale(scale: float) -> None:
    signatures = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    expected = instance_similarity(signatures)
    torch.testing.assert_close(instance_similarity(signatures * scale), expected)


def test_running_mean_and_count_by_hand() -> None:
    first = torch.tensor([[1.0, 0.2], [0.2, 1.0]])
    second = torch.tensor([[1.0, 0.6], [0.6, 1.0]])
    third = torch.tensor([[1.0, 0.1], [0.1, 1.0]])
    matrix = SimilarityMatrix().observe(["a", "b"], first).observe(["b", "a"], second)
    matrix = matrix.observe(["a", "c"], third)
    assert matrix.client_ids == ("a", "b", "c")
    assert matrix.mean[0, 1].item() == pytest.approx((0.2 + 0.6) / 2)
    assert matrix.mean[0, 2].item() == pytest.approx(0.1)
    assert matrix.count.tolist() == [[3, 2, 1], [2, 2, 0], [1, 0, 1]]
    assert matrix.known.tolist() == [[True, True, True], [True, True, False], [True, False, True]]


@given(st.integers(0, 10**6))
def test_running_mean_matches_brute_force(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    seen: dict[tuple[int, int], list[float]] = {}
    matrix = SimilarityMatrix()
    for _ in range(6):
        present: list[ClientId] = torch.randperm(7, generator=generator)[:4].tolist()
        similarity = instance_similarity(torch.randn(4, 3, generator=generator).double())
        matrix = matrix.observe(present, similarity)
        for row, i in enumerate(present):
            for column, j in enumerate(present):
                seen.setdefault((i, j), []).append(similarity[row, column].item())  # type: ignore[arg-type]
    for row, i in enumerate(matrix.client_ids):
        for column, j in enumerate(matrix.client_ids):
            values = seen.get((i, j), [])  # type: ignore[arg-type]
            assert matrix.count[row, column] == len(values)
            assert matrix.known[row, column] == bool(values)
            if values:
                expected = sum(values) / len(values)
                assert matrix.mean[row, column].item() == pytest.approx(expected, abs=1e-12)


def test_observing_changes_no_earlier_matrix() -> None:
    before = SimilarityMatrix().observe([1, 2], torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    copies = before.mean.clone(), before.count.clone(), before.known.clone()
    before.observe([2, 3], torch.eye(2)).estimate_missing(0.3, "mean").observe([1, 2], torch.eye(2))
    assert all(map(torch.equal, (before.mean, before.count, before.known), copies))


def test_survives_tensors() -> None:
    matrix = SimilarityMatrix().observe([1, "zwei"], torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    matrix = matrix.observe(["zwei", 3], torch.tensor([[1.0, 0.9], [0.9, 1.0]]))
    matrix = matrix.estimate_missing(0.3, "mean")
    again = SimilarityMatrix.from_tensors(matrix.to_tensors())
    assert again.client_ids == (1, "zwei", 3)
    for name, tensor in matrix.to_tensors().items():
        assert torch.equal(again.to_tensors()[name].nan_to_num(9), tensor.nan_to_num(9)), name


def test_wrong_observations_are_refused() -> None:
    with pytest.raises(CadisError, match="twice in one round"):
        SimilarityMatrix().observe([1, 1], torch.eye(2))
    with pytest.raises(CadisError, match="2 clients need"):
        SimilarityMatrix().observe([1, 2], torch.eye(3))
