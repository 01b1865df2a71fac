"""Weights from the similarities of clients, without a decision on clusters."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cadis
from cadis.algorithm import compute_sample_weights
from cadis.algorithm.methods import CADIS
from cadis.algorithm.methods.cadis.clustering import compute_cluster_weights
from cadis.algorithm.methods.cadis.soft_weights import compute_soft_weights, reduce_long_updates
from cadis.algorithm.vectors import compute_kernel
from cadis.errors import CadisError


def test_hand_computed_example() -> None:
    """Clients 0 and 1 have a similarity of 0.5, client 2 is different.

    10 / (10 + 0.5 * 30) = 0.4, 30 / (0.5 * 10 + 30) = 6 / 7 and 20 / 20 = 1, divided by the sum.
    """
    kernel = torch.tensor([[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]])
    total = 0.4 + 6 / 7 + 1
    expected = [0.4 / total, 6 / 7 / total, 1 / total]
    assert compute_soft_weights([10, 30, 20], kernel).tolist() == pytest.approx(expected)


def test_kernel_is_the_squared_positive_cosine() -> None:
    vectors = torch.tensor([[3.0, 4.0], [0.0, 2.0], [-1.0, 0.0], [0.0, 0.0]])
    expected = [[1, 0.64, 0, 0], [0.64, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert torch.allclose(compute_kernel(vectors), torch.tensor(expected))
    assert torch.allclose(compute_kernel(vectors, vectors[:2]), torch.tensor(expected)[:, :2])


COUNTS = st.lists(st.integers(1, 1000), min_size=1, max_size=8)


@given(COUNTS)
def test_identical_clients_have_the_weights_of_fedavg(counts: list[int]) -> None:
    weights = compute_soft_weights(counts, torch.ones(len(counts), len(counts)))
    assert torch.allclose(weights, compute_sample_weights(counts))


@given(COUNTS)
def test_different_clients_have_the_same_weight(counts: list[int]) -> None:
    weights = compute_soft_weights(counts, torch.eye(len(counts)))
    assert torch.allclose(weights, torch.full_like(weights, 1 / len(counts)))


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 2)), min_size=1, max_size=12))
def test_each_cluster_has_the_same_total_weight(pairs: list[tuple[int, int]]) -> None:
    """This holds for clients of any size; with equal sizes the weights are those of the paper."""
    counts, labels = (torch.tensor(column) for column in zip(*pairs, strict=True))
    kernel = (labels[:, None] == labels).float()
    totals = torch.zeros(3).double().index_add(0, labels, compute_soft_weights(counts, kernel))
    present = totals[labels.unique()]
    assert torch.allclose(present, torch.full_like(present, 1 / len(present)))
    same_size = torch.full_like(counts, 7)
    assert torch.allclose(
        compute_soft_weights(same_size, kernel), compute_cluster_weights(same_size, labels)
    )


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=9), st.floats(0, 1e6))
def test_updates_of_similar_norms_keep_their_weights(norms: list[float], model_norm: float) -> None:
    """Each update contributes as much as an update of its direction that is cut at the bound."""
    lengths = torch.tensor(norms, dtype=torch.float64)
    weights = torch.full_like(lengths, 1 / len(lengths))
    reduced = reduce_long_updates(weights, lengths, model_norm)
    bound = 0.15 * max(model_norm, 10)
    assert float(reduced.sum()) == pytest.approx(1)
    assert (reduced > 0).all()
    assert torch.allclose(reduced[lengths <= bound], reduced.max())
    contributions, cut = reduced * lengths, lengths.clamp(max=bound)
    assert torch.allclose(contributions * cut.sum(), cut * contributions.sum())


def test_weight_of_a_diverged_client() -> None:
    """Client 4 sends an update of norm 40, the others of norm 1 or 2, and the model has norm 20.

    Then b = 0.15 * 20 = 3, and the weights are 1, 1, 1, 1 and 3 / 40, divided by their sum. A model
    of norm 0 counts as norm 10, so b = 1.5, and the weights are 1, 1, 3 / 4, 3 / 4 and 1.5 / 40.
    """
    norms = torch.tensor([1.0, 1.0, 2.0, 2.0, 40.0]).double()
    same = torch.full((5,), 0.2).double()
    expected = torch.tensor([1, 1, 1, 1, 0.075]).double() / 4.075
    assert reduce_long_updates(same, norms, 20.0).tolist() == pytest.approx(expected.tolist())
    expected = torch.tensor([1, 1, 0.75, 0.75, 0.0375]).double() / 3.5375
    assert reduce_long_updates(same, norms, 0.0).tolist() == pytest.approx(expected.tolist())


@pytest.mark.parametrize(
    ("parameters", "is_soft"),
    [
        ({}, True),
        ({"threshold": 0.8}, False),
        ({"absent": 0.5}, False),
        ({"signature": "head"}, False),
        ({"weights": "clusters"}, False),
        ({"threshold": 0.8, "weights": "soft"}, True),
    ],
)
def test_default_weights(parameters: dict[str, Any], is_soft: bool) -> None:
    assert CADIS(**parameters)._has_soft_weights is is_soft


def test_wrong_combinations() -> None:
    for parameters in ({"signature": "head"}, {"absent": 0.5}):
        with pytest.raises(CadisError, match="Soft weights need class profiles"):
            CADIS(weights="soft", **parameters)


@pytest.mark.parametrize("clusters", ["found", "true"])
def test_weights_of_a_run(clusters: str) -> None:
    """Clients 0 to 3 have the same two classes; client 4 has the third class."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(400, 5, generator=generator)
    labels = inputs[:, :3].argmax(dim=1)
    common, rare = (labels < 2).nonzero()[:, 0], (labels == 2).nonzero()[:, 0]
    indices = [*common[:200].split([20, 40, 60, 80]), rare[:50]]
    result = cadis.run(
        torch.nn.Linear(5, 3),
        [(inputs[i], labels[i]) for i in indices],
        (inputs, labels),
        rounds=4,
        method=CADIS(weights="soft", clusters=clusters),  # type: ignore[arg-type]
        true_clusters=[0, 0, 0, 0, 1],
        lr=0.1,
    )
    weights = result.history[-1].weights
    assert weights[4] == pytest.approx(0.5, abs=0.02)
    assert weights[:4] == pytest.approx([0.05, 0.1, 0.15, 0.2], abs=0.02)
