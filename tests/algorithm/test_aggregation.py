"""The weighted mean of states and the weights of FedAvg and CADIS, by hand and by brute force."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cadis.algorithm import average_tensors, compute_sample_weights
from cadis.algorithm.methods.cadis import compute_cluster_weights
from cadis.errors import CadisError, RunError

counts = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 3)), min_size=1, max_size=12)


def test_weights_by_hand() -> None:
    weights = compute_cluster_weights([10, 30, 20], [0, 0, 1])
    alpha = [10 / 60 / 2, 30 / 60 / 2, 20 / 60 / 1]
    assert weights.tolist() == pytest.approx([a / sum(alpha) for a in alpha])


@given(counts)
def test_weights_match_brute_force(pairs: list[tuple[int, int]]) -> None:
    samples, labels = [n for n, _ in pairs], [label for _, label in pairs]
    alpha = [n / labels.count(label) for n, label in pairs]
    weights = compute_cluster_weights(samples, labels)
    assert weights.tolist() == pytest.approx([a / sum(alpha) for a in alpha])
    assert weights.sum().item() == pytest.approx(1)


def test_clusters_of_equal_clients_have_equal_weight() -> None:
    labels = [0] * 7 + [1] * 2 + [2]
    weights = compute_cluster_weights([50] * 10, labels)
    for label in range(3):
        assert weights[torch.tensor(labels) == label].sum().item() == pytest.approx(1 / 3)


def test_cardinality_may_be_that_of_the_federation() -> None:
    assert compute_cluster_weights([1, 1], [0, 1], cardinality=[3, 1]).tolist() == [0.25, 0.75]


def test_mean_by_hand_with_buffers() -> None:
    states = [
        {"w": torch.tensor([1.0, 2.0]), "running": torch.tensor([4.0]), "steps": torch.tensor(7)},
        {"w": torch.tensor([3.0, 6.0]), "running": torch.tensor([0.0]), "steps": torch.tensor(5)},
    ]
    mean = average_tensors(states, [0.25, 0.75])
    assert mean["w"].tolist() == [0.25 * 1 + 0.75 * 3, 0.25 * 2 + 0.75 * 6]
    assert mean["running"].tolist() == [1.0]
    assert mean["steps"].item() == 7
    assert mean["steps"].dtype == torch.int64


@given(st.integers(1, 9), st.integers(0, 10**6))
def test_mean_matches_brute_force(k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    states = [{"w": torch.randn(2, 3, generator=generator)} for _ in range(k)]
    weights = torch.rand(k, generator=generator).double()
    weights /= weights.sum()
    mean = average_tensors(states, weights)["w"]
    for row in range(2):
        for column in range(3):
            terms = [
                float(w) * state["w"][row, column].item()
                for w, state in zip(weights, states, strict=True)
            ]
            assert mean[row, column].item() == pytest.approx(sum(terms), rel=1e-6, abs=1e-7)


@given(st.integers(1, 9), st.integers(0, 10**6))
def test_mean_of_equal_states_is_that_state_exactly(k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    state = {"w": torch.randn(50, generator=generator)}
    weights = torch.rand(k, generator=generator).double() + 0.01
    mean = average_tensors([state] * k, weights / weights.sum())
    assert torch.equal(mean["w"], state["w"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int32, torch.bool])
def test_dtype_is_kept(dtype: torch.dtype) -> None:
    states = [{"x": torch.tensor([1, 0]).to(dtype)}, {"x": torch.tensor([0, 0]).to(dtype)}]
    assert average_tensors(states, [0.5, 0.5])["x"].dtype == dtype


def test_mean_of_parameters_does_not_require_grad() -> None:
    states = [{"w": torch.full((2,), value, requires_grad=True)} for value in (1.0, 2.0)]
    mean = average_tensors(states, [0.5, 0.5])["w"]
    assert mean.tolist() == [1.5, 1.5]
    assert not mean.requires_grad
    assert states[0]["w"].tolist() == [1, 1]  # inputs are not changed


def test_states_with_other_names_or_shapes_are_rejected() -> None:
    with pytest.raises(CadisError, match="names: b"):
        average_tensors(
            [{"a": torch.ones(1)}, {"a": torch.ones(1), "b": torch.ones(1)}], [0.5, 0.5]
        )
    with pytest.raises(CadisError, match=r"shapes of a: \(1, 3\) and \(3,\)"):
        average_tensors([{"a": torch.ones(1, 3)}, {"a": torch.ones(3)}], [0.5, 0.5])
    with pytest.raises(CadisError, match="1 weights for 0 states"):
        average_tensors([], [1.0])


@pytest.mark.parametrize(
    "weights",
    [[0.0, 0.0], [0.5, 0.6], [torch.nan, 0.5], [torch.inf, 0.0], [1.5, -0.5], [1e308, 1e308]],
)
def test_invalid_weights_are_rejected(weights: list[float]) -> None:
    states = [{"w": torch.ones(2)}, {"w": torch.zeros(2)}]
    with pytest.raises(RunError, match="are invalid; weights must not be negative"):
        average_tensors(states, weights)


@pytest.mark.parametrize("counts", [[1.7e308, 1.7e308], [0, 4], [-1, 4], [torch.nan, 4.0]])
def test_invalid_numbers_of_samples_are_rejected(counts: list[float]) -> None:
    with pytest.raises(RunError, match="must be positive and finite; the clients have"):
        compute_sample_weights(torch.tensor(counts, dtype=torch.float64))
    with pytest.raises(RunError, match="must be positive and finite; the clients have"):
        compute_cluster_weights(torch.tensor(counts, dtype=torch.float64), [0, 1])
