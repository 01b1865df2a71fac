"""Similarities of a round, and what is remembered of them: all pairs, or those that met."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from cadis.algorithm.methods.cadis import ObservedPairs, SimilarityMatrix, instance_similarity
from cadis.errors import CadisError
from cadis.types import ClientId
from method_support import pair_of, same_tensors
from parts_support import snapshot


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
    assert zero.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]  # like nobody but itself


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


def both(
    seed: int, clients: int = 9, per_round: int = 4, rounds: int = 7, skew: float = 0.0
) -> tuple[ObservedPairs, SimilarityMatrix]:
    """The table and the dense matrix after the same rounds."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(clients, 4, generator=generator).double() + skew
    pairs, matrix = ObservedPairs(), SimilarityMatrix()
    for _ in range(rounds):
        present = torch.randperm(clients, generator=generator)[:per_round]
        noise = 0.3 * torch.randn(per_round, 4, generator=generator).double()
        similarity = instance_similarity(vectors[present] + noise)
        ids: list[ClientId] = [f"client {row}" if row % 2 else row for row in present.tolist()]
        pairs, together = pairs.observe(ids, similarity)
        matrix = matrix.observe(ids, similarity)
        rows = matrix.index_of(ids)
        expected = matrix.mean[rows[:, None], rows].fill_diagonal_(1)
        assert torch.equal(together, expected)  # bit for bit
    return pairs, matrix


def test_means_and_counts_by_hand() -> None:
    pairs, matrix = ObservedPairs(), SimilarityMatrix()
    for ids, similarity in ((["a", "b"], 0.25), (["c", "a"], 0.125), (["b", "a"], 0.75)):
        pairs, together = pairs.observe(ids, pair_of(similarity))
        matrix = matrix.observe(ids, pair_of(similarity))
    assert pairs.client_ids == matrix.client_ids == ("a", "b", "c")
    assert pairs.pair.tolist() == [1 << 32 | 0, 2 << 32 | 0]
    assert pairs.mean.tolist() == [(0.25 + 0.75) / 2, 0.125]
    assert pairs.count.tolist() == [2, 1]
    assert together.tolist() == [[1, 0.5], [0.5, 1]]
    assert pairs.lowest() == 0.125
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
def test_the_table_holds_what_the_matrix_of_all_pairs_holds(seed: int, per_round: int) -> None:
    pairs, matrix = both(seed, per_round=per_round)
    assert pairs.client_ids == matrix.client_ids
    later, earlier = matrix.count.tril(-1).nonzero().T
    assert pairs.pair.tolist() == (later << 32 | earlier).tolist()
    assert torch.equal(pairs.mean, matrix.mean[later, earlier])
    assert torch.equal(pairs.count, matrix.count[later, earlier])


@given(st.integers(0, 10**6), st.floats(0.01, 0.4))
def test_no_estimate_is_below_the_lowest_observation_if_that_is_not_positive(
    seed: int, gamma: float
) -> None:
    pairs, matrix = both(seed, skew=0.7)
    assume(pairs.lowest() <= 0)
    complete = matrix.estimate_missing(gamma, "mean")
    known = complete.mean[complete.known]
    assert known.min().item() == pytest.approx(pairs.lowest().item(), abs=1e-12)


def test_an_estimate_may_be_below_observations_that_are_all_positive() -> None:
    """Why that is a departure: nothing but the sign of the lowest observation rules it out."""
    matrix = SimilarityMatrix().observe(["a", "p"], pair_of(0.5)).observe(["p", "b"], pair_of(0.9))
    assert matrix.estimate_missing(0.2, "mean").mean[0, 2].item() == pytest.approx(0.5 * 0.9)


def test_nobody_has_met() -> None:
    pairs, together = ObservedPairs().observe(["a"], torch.ones(1, 1))
    assert (pairs.client_ids, len(pairs.pair)) == (("a",), 0)
    assert together.tolist() == [[1]]
    assert pairs.lowest() == 1


def test_observing_changes_nothing_earlier() -> None:
    three, other = (instance_similarity(torch.randn(3, 2)) for _ in range(2))
    pairs, matrix = ObservedPairs().observe([1, 2, 3], three)[0], SimilarityMatrix()
    matrix = matrix.observe([1, 2, 3], three)
    copies = snapshot(pairs.to_tensors()), snapshot(matrix.to_tensors())
    pairs.observe([2, 3], pair_of(0.5))
    pairs.observe([4, 1, 3], other)
    matrix.observe([2, 4], torch.eye(2)).estimate_missing(0.3, "mean").observe([1, 2], torch.eye(2))
    assert same_tensors(copies[0], pairs.to_tensors())
    assert same_tensors(copies[1], matrix.to_tensors())


@given(st.integers(0, 10**6))
def test_both_survive_tensors(seed: int) -> None:
    pairs, matrix = both(seed)
    stored = pairs.to_tensors()
    assert same_tensors(ObservedPairs.from_tensors(stored).to_tensors(), stored)
    for each in (matrix, matrix.estimate_missing(0.3, "mean")):
        stored = each.to_tensors()
        assert same_tensors(SimilarityMatrix.from_tensors(stored).to_tensors(), stored)


def test_the_table_grows_with_the_pairs_that_met() -> None:
    pairs, _ = both(seed=0, clients=3000, per_round=40, rounds=20)
    bytes_kept = sum(tensor.nbytes for tensor in pairs.to_tensors().values())
    assert len(pairs.pair) <= 20 * 40 * 39 / 2
    assert bytes_kept < 20 * len(pairs.pair) + 20 * len(pairs.client_ids)


@pytest.mark.parametrize("memory", [SimilarityMatrix(), ObservedPairs()])
def test_wrong_observations_are_refused(memory: SimilarityMatrix | ObservedPairs) -> None:
    with pytest.raises(CadisError, match="twice in one round"):
        memory.observe([1, 1], torch.eye(2))
    with pytest.raises(CadisError, match="2 clients need"):
        memory.observe([1, 2], torch.eye(3))


def test_pairs_that_met_and_others() -> None:
    pairs, matrix = both(seed=3)
    rows = torch.arange(len(pairs.client_ids))
    found = pairs.between(rows[:, None], rows)
    met = (matrix.count > 0).fill_diagonal_(True)
    assert not met.all()
    assert torch.equal(found.isnan(), ~met)
    expected = matrix.mean.clone().fill_diagonal_(1)
    assert torch.equal(found[met], expected[met])
    assert ObservedPairs().between(torch.tensor([0]), torch.tensor([1])).isnan().all()
