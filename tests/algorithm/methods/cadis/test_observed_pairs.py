import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from cadis.algorithm.methods.cadis import ObservedPairs, SimilarityMatrix, instance_similarity
from cadis.errors import CadisError
from cadis.types import ClientId


def pair_of(similarity: float) -> torch.Tensor:
    return torch.tensor([[1.0, similarity], [similarity, 1.0]])


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
    pairs, _ = ObservedPairs().observe(["a", "b"], pair_of(0.25))
    pairs, _ = pairs.observe(["c", "a"], pair_of(0.125))
    pairs, together = pairs.observe(["b", "a"], pair_of(0.75))
    assert pairs.client_ids == ("a", "b", "c")
    assert pairs.pair.tolist() == [1 << 32 | 0, 2 << 32 | 0]
    assert pairs.mean.tolist() == [(0.25 + 0.75) / 2, 0.125]
    assert pairs.count.tolist() == [2, 1]
    assert together.tolist() == [[1, 0.5], [0.5, 1]]
    assert pairs.lowest() == 0.125


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_it_holds_what_the_matrix_of_all_pairs_holds(seed: int, per_round: int) -> None:
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


def test_observing_changes_no_earlier_table() -> None:
    before, _ = ObservedPairs().observe([1, 2, 3], instance_similarity(torch.randn(3, 2)))
    copies = {name: tensor.clone() for name, tensor in before.to_tensors().items()}
    before.observe([2, 3], pair_of(0.5))
    before.observe([4, 1, 3], instance_similarity(torch.randn(3, 2)))
    assert all(torch.equal(copies[name], t) for name, t in before.to_tensors().items())


@given(st.integers(0, 10**6))
def test_it_survives_tensors(seed: int) -> None:
    pairs, _ = both(seed)
    again = ObservedPairs.from_tensors(pairs.to_tensors())
    assert again.client_ids == pairs.client_ids
    for name, tensor in pairs.to_tensors().items():
        assert torch.equal(again.to_tensors()[name], tensor), name
        assert again.to_tensors()[name].dtype == tensor.dtype


def test_it_grows_with_the_pairs_that_met() -> None:
    pairs, _ = both(seed=0, clients=3000, per_round=40, rounds=20)
    bytes_kept = sum(tensor.nbytes for tensor in pairs.to_tensors().values())
    assert len(pairs.pair) <= 20 * 40 * 39 / 2
    assert bytes_kept < 20 * len(pairs.pair) + 20 * len(pairs.client_ids)


def test_wrong_observations_are_refused() -> None:
    with pytest.raises(CadisError, match="twice in one round"):
        ObservedPairs().observe([1, 1], torch.eye(2))
    with pytest.raises(CadisError, match="2 clients need"):
        ObservedPairs().observe([1, 2], torch.eye(3))


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
