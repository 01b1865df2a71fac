"""Instance and cumulative similarity, as a full matrix and as a table of observed pairs."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from cadis.algorithm.methods.cadis import ObservedPairs, SimilarityMatrix, instance_similarity
from cadis.errors import CadisError
from cadis.types import ClientId
from method_support import are_equal_tensors, make_similarity
from parts_support import copy_tensors


def brute_force_cosine(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / (math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b)))


def test_cosine_by_hand() -> None:
    signatures = torch.tensor([[3.0, 4.0], [4.0, 3.0], [-3.0, -4.0]])
    similarity = instance_similarity(signatures)
    assert similarity[0, 1].item() == pytest.approx((3 * 4 + 4 * 3) / (5 * 5))
    assert similarity[0, 2].item() == pytest.approx(-1)
    for scale in (1e-30, 1e30):
        torch.testing.assert_close(instance_similarity(signatures * scale), similarity)
    zero = instance_similarity(torch.tensor([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]]))
    assert zero.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]  # similar only to itself


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


def observe_rounds(
    seed: int, clients: int = 9, per_round: int = 4, rounds: int = 7, skew: float = 0.0
) -> tuple[ObservedPairs, SimilarityMatrix]:
    """Return the table and the full matrix after the same rounds."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(clients, 4, generator=generator).double() + skew
    pairs, matrix = ObservedPairs(), SimilarityMatrix()
    for _ in range(rounds):
        present = torch.randperm(clients, generator=generator)[:per_round]
        noise = 0.3 * torch.randn(per_round, 4, generator=generator).double()
        similarity = instance_similarity(vectors[present] + noise)
        ids: list[ClientId] = [f"client {row}" if row % 2 else row for row in present.tolist()]
        pairs, means = pairs.observe(ids, similarity)
        matrix = matrix.observe(ids, similarity)
        rows = matrix.find_rows(ids)
        expected = matrix.mean[rows[:, None], rows].fill_diagonal_(1)
        assert torch.equal(means, expected)  # bit for bit
    return pairs, matrix


def test_means_and_counts_by_hand() -> None:
    pairs, matrix = ObservedPairs(), SimilarityMatrix()
    for ids, similarity in ((["a", "b"], 0.25), (["c", "a"], 0.125), (["b", "a"], 0.75)):
        pairs, means = pairs.observe(ids, make_similarity(similarity))
        matrix = matrix.observe(ids, make_similarity(similarity))
    assert pairs.client_ids == matrix.client_ids == ("a", "b", "c")
    assert pairs.pair.tolist() == [1 << 32 | 0, 2 << 32 | 0]
    assert pairs.mean.tolist() == [(0.25 + 0.75) / 2, 0.125]
    assert pairs.count.tolist() == [2, 1]
    assert means.tolist() == [[1, 0.5], [0.5, 1]]
    assert pairs.min_similarity() == 0.125
    assert matrix.mean[0].tolist() == [1, (0.25 + 0.75) / 2, 0.125]
    assert matrix.count.tolist() == [[3, 2, 1], [2, 2, 0], [1, 0, 1]]
    assert torch.equal(matrix.known, matrix.count > 0)


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


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_the_table_equals_the_full_matrix(seed: int, per_round: int) -> None:
    pairs, matrix = observe_rounds(seed, per_round=per_round)
    assert pairs.client_ids == matrix.client_ids
    larger, smaller = matrix.count.tril(-1).nonzero().T
    assert pairs.pair.tolist() == (larger << 32 | smaller).tolist()
    assert torch.equal(pairs.mean, matrix.mean[larger, smaller])
    assert torch.equal(pairs.count, matrix.count[larger, smaller])


@given(st.integers(0, 10**6), st.floats(0.01, 0.4))
def test_no_estimate_is_below_the_lowest_observation_if_that_is_not_positive(
    seed: int, gamma: float
) -> None:
    pairs, matrix = observe_rounds(seed, skew=0.7)
    assume(pairs.min_similarity() <= 0)
    complete = matrix.estimate_missing(gamma, "mean")
    known = complete.mean[complete.known]
    assert known.min().item() == pytest.approx(pairs.min_similarity().item(), abs=1e-12)


def test_an_estimate_can_be_below_positive_observations() -> None:
    """So the minimum over observations can depart from the paper in this case."""
    matrix = (
        SimilarityMatrix()
        .observe(["a", "p"], make_similarity(0.5))
        .observe(["p", "b"], make_similarity(0.9))
    )
    assert matrix.estimate_missing(0.2, "mean").mean[0, 2].item() == pytest.approx(0.5 * 0.9)


def test_a_single_client_has_no_pairs() -> None:
    pairs, means = ObservedPairs().observe(["a"], torch.ones(1, 1))
    assert (pairs.client_ids, len(pairs.pair)) == (("a",), 0)
    assert means.tolist() == [[1]]
    assert pairs.min_similarity() == 1


def test_observe_does_not_change_the_object() -> None:
    three, other = (instance_similarity(torch.randn(3, 2)) for _ in range(2))
    pairs, matrix = ObservedPairs().observe([1, 2, 3], three)[0], SimilarityMatrix()
    matrix = matrix.observe([1, 2, 3], three)
    copies = copy_tensors(pairs.to_tensors()), copy_tensors(matrix.to_tensors())
    pairs.observe([2, 3], make_similarity(0.5))
    pairs.observe([4, 1, 3], other)
    matrix.observe([2, 4], torch.eye(2)).estimate_missing(0.3, "mean").observe([1, 2], torch.eye(2))
    assert are_equal_tensors(copies[0], pairs.to_tensors())
    assert are_equal_tensors(copies[1], matrix.to_tensors())


@given(st.integers(0, 10**6))
def test_table_and_matrix_survive_a_checkpoint(seed: int) -> None:
    pairs, matrix = observe_rounds(seed)
    stored = pairs.to_tensors()
    assert are_equal_tensors(ObservedPairs.from_tensors(stored).to_tensors(), stored)
    for candidate in (matrix, matrix.estimate_missing(0.3, "mean")):
        stored = candidate.to_tensors()
        assert are_equal_tensors(SimilarityMatrix.from_tensors(stored).to_tensors(), stored)


def test_the_table_grows_with_the_observed_pairs() -> None:
    pairs, _ = observe_rounds(seed=0, clients=3000, per_round=40, rounds=20)
    nbytes = sum(tensor.nbytes for tensor in pairs.to_tensors().values())
    assert len(pairs.pair) <= 20 * 40 * 39 / 2
    assert nbytes < 20 * len(pairs.pair) + 20 * len(pairs.client_ids)


@pytest.mark.parametrize("observed", [SimilarityMatrix(), ObservedPairs()])
def test_invalid_observations_are_rejected(observed: SimilarityMatrix | ObservedPairs) -> None:
    with pytest.raises(CadisError, match="twice in one round"):
        observed.observe([1, 1], torch.eye(2))
    with pytest.raises(CadisError, match="matrix of 2 clients"):
        observed.observe([1, 2], torch.eye(3))


def test_similarity_of_pairs_of_rows() -> None:
    pairs, matrix = observe_rounds(seed=3)
    rows = torch.arange(len(pairs.client_ids))
    similarity = pairs.get_similarity(rows[:, None], rows)
    observed = (matrix.count > 0).fill_diagonal_(True)
    assert not observed.all()
    assert torch.equal(similarity.isnan(), ~observed)
    expected = matrix.mean.clone().fill_diagonal_(1)
    assert torch.equal(similarity[observed], expected[observed])
    assert ObservedPairs().get_similarity(torch.tensor([0]), torch.tensor([1])).isnan().all()
