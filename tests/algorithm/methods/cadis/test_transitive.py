import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cadis.algorithm.methods.cadis import SimilarityMatrix, estimate_all, instance_similarity
from cadis.errors import CadisError
from method_support import make_similarity


def observe_rounds(
    seed: int, clients: int = 9, per_round: int = 3, rounds: int = 5
) -> SimilarityMatrix:
    """Observe vectors near one of two directions, a few per round."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(2, 6, generator=generator).double()
    vectors = centres[torch.arange(clients) % 2]
    vectors = vectors + 0.3 * torch.randn(clients, 6, generator=generator).double()
    matrix = SimilarityMatrix()
    for _ in range(rounds):
        present = torch.randperm(clients, generator=generator)[:per_round]
        matrix = matrix.observe(present.tolist(), instance_similarity(vectors[present]))
    return matrix


def estimate_by_loops(
    matrix: SimilarityMatrix, gamma: float, i: int, j: int
) -> tuple[float, float] | None:
    """Return mean and deviation of the estimate for one pair, computed by loops."""
    s, count = matrix.mean.tolist(), matrix.count.tolist()
    means, variances = [], []
    for p in range(len(s)):
        if p in (i, j) or not count[i][p] or not count[j][p]:
            continue
        deviation = math.sqrt((1 - s[i][p] ** 2) * (1 - s[j][p] ** 2)) / 3
        if deviation < gamma:
            means.append(s[i][p] * s[j][p])
            variances.append(deviation**2)
    if not means:
        return None
    return sum(means) / len(means), math.sqrt(sum(variances)) / len(means)


def check_against_brute_force(complete: SimilarityMatrix, gamma: float) -> None:
    for i in range(len(complete.client_ids)):
        for j in range(len(complete.client_ids)):
            if complete.count[i, j]:
                continue
            expected = estimate_by_loops(complete, gamma, i, j)
            assert bool(complete.known[i, j]) == (expected is not None)
            assert complete.mean[i, j].item() == pytest.approx(expected[0] if expected else 0)


def test_estimate_by_hand() -> None:
    matrix = (
        SimilarityMatrix()
        .observe(["a", "p"], make_similarity(0.8))
        .observe(["p", "b"], make_similarity(0.9))
    )
    deviation = math.sqrt((1 - 0.8**2) * (1 - 0.9**2)) / 3  # 0.0872
    complete = matrix.estimate_missing(0.1, "mean")
    assert complete.mean[0, 2].item() == pytest.approx(0.8 * 0.9)
    assert complete.mean[2, 0].item() == pytest.approx(0.8 * 0.9)
    assert not matrix.estimate_missing(deviation * 0.99, "mean").known[0, 2]
    assert matrix.estimate_missing(deviation * 1.01, "mean").known[0, 2]


@given(st.integers(0, 10**6), st.floats(0.01, 0.4))
def test_estimates_match_brute_force(seed: int, gamma: float) -> None:
    check_against_brute_force(observe_rounds(seed).estimate_missing(gamma, "mean"), gamma)


@given(st.integers(0, 10**6))
def test_updated_estimates_equal_recomputed_ones(seed: int) -> None:
    updated, plain = SimilarityMatrix(), SimilarityMatrix()
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(9, 4, generator=generator).double()
    for _ in range(6):
        present = torch.randperm(9, generator=generator)[:3]
        similarity = instance_similarity(vectors[present])
        updated = updated.observe(present.tolist(), similarity).estimate_missing(0.25, "mean")
        plain = plain.observe(present.tolist(), similarity)
    recomputed = plain.estimate_missing(0.25, "mean")
    torch.testing.assert_close(updated.mean, recomputed.mean)
    assert torch.equal(updated.known, recomputed.known)
    check_against_brute_force(updated, 0.25)


def test_gamma_can_change_and_mode_off_drops_estimates() -> None:
    matrix = observe_rounds(seed=3)
    before = matrix.estimate_missing(0.4, "mean")
    changed, fresh = (start.estimate_missing(0.05, "mean") for start in (before, matrix))
    assert torch.equal(changed.known, fresh.known)
    assert torch.equal(changed.mean, fresh.mean)
    assert torch.equal(before.estimate_missing(0.4, "off").known, matrix.count > 0)


def test_the_first_observation_replaces_an_estimate() -> None:
    matrix = (
        SimilarityMatrix()
        .observe(["a", "p"], make_similarity(0.9))
        .observe(["p", "b"], make_similarity(0.9))
    )
    matrix = matrix.estimate_missing(0.3, "mean").observe(["a", "b"], make_similarity(-0.5))
    assert matrix.mean[0, 2].item() == pytest.approx(-0.5)
    assert matrix.estimate_missing(0.3, "mean").mean[0, 2].item() == pytest.approx(-0.5)
    assert matrix.count[0, 2] == 1


def test_estimates_do_not_use_other_estimates() -> None:
    matrix = SimilarityMatrix()
    for first, second in (("a", "b"), ("b", "c"), ("c", "d")):
        matrix = matrix.observe([first, second], make_similarity(0.9)).estimate_missing(0.3, "mean")
    assert matrix.known[0, 2]  # a - c by helper b
    assert not matrix.known[0, 3]  # a - d would need an estimate


def sample_estimates(matrix: SimilarityMatrix, seed: int) -> Tensor:
    return matrix.estimate_missing(0.3, "sample", torch.Generator().manual_seed(seed)).mean


def test_sampled_estimates_have_the_stated_distribution() -> None:
    s, t, number = 0.8, 0.7, 3000
    matrix = SimilarityMatrix().observe(["a", "p"], make_similarity(s).double())
    matrix = matrix.observe(["p", "b"], make_similarity(t).double())
    draws = torch.stack([sample_estimates(matrix, seed)[0, 2] for seed in range(number)])
    deviation = math.sqrt((1 - s**2) * (1 - t**2)) / 3
    assert draws.mean().item() == pytest.approx(s * t, abs=4 * deviation / math.sqrt(number))
    assert draws.std().item() == pytest.approx(deviation, rel=0.06)


def test_sampling_is_seeded_symmetric_and_bounded() -> None:
    matrix = observe_rounds(seed=1)
    first, again, other = (
        sample_estimates(matrix, 1),
        sample_estimates(matrix, 1),
        sample_estimates(matrix, 2),
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(first, first.T)
    assert first.abs().max() <= 1
    with pytest.raises(CadisError, match="generator"):
        matrix.estimate_missing(0.3, "sample")


@given(st.integers(0, 10**6), st.floats(0.01, 0.4))
def test_estimate_all_equals_estimate_missing(seed: int, gamma: float) -> None:
    matrix = observe_rounds(seed, clients=14, rounds=7)
    direct = torch.where(matrix.count > 0, matrix.mean, torch.nan)
    estimates = estimate_all(direct, gamma)
    estimated = matrix.estimate_missing(gamma, "mean")
    assert torch.equal(~estimates.isnan(), estimated.known & (matrix.count == 0))
    torch.testing.assert_close(estimates.nan_to_num(), estimated.mean * ~estimates.isnan())
