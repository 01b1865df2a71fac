from math import exp, log

import pytest
import torch

from cadis.algorithm import Aggregation, ServerRound
from cadis.algorithm.methods import FedCav
from cadis.rng import generator_for
from cadis.types import ModelState, TensorState
from support import state_of, update_of, view

ZERO = torch.zeros(0).long()


def model(w: float) -> ModelState:
    return ModelState(torch.tensor([w]), torch.tensor([10 * w]), ZERO)


def aggregate(
    losses: list[float],
    sent: float = 0.0,
    memory: TensorState | None = None,
    method: FedCav | None = None,
) -> Aggregation:
    """Of clients that trained models 1, 2, ... with any numbers of samples."""
    updates = [
        update_of(place, 10 + 7 * place, model(1.0 + place), received_loss=loss)
        for place, loss in enumerate(losses)
    ]
    server_round = ServerRound(1, (), 9, generator_for(0))
    return (method or FedCav()).aggregate(server_round, updates, state_of(model(sent), memory))


def test_softmax_of_clipped_losses_by_hand() -> None:
    found = aggregate([0.5, 1.0, 3.0])
    mean = (0.5 + 1.0 + 3.0) / 3
    parts = [exp(0.5), exp(1.0), exp(mean)]
    expected = [part / sum(parts) for part in parts]
    assert found.weights.tolist() == pytest.approx(expected)
    w = sum(share * (1 + place) for place, share in enumerate(expected))
    assert found.models["model"].parameters.item() == pytest.approx(w)
    assert found.models["model"].buffers.item() == pytest.approx(10 * w)
    assert not found.memory


def test_equal_losses_are_equal_weights() -> None:
    assert aggregate([0.7, 0.7, 0.7, 0.7]).weights.tolist() == pytest.approx([1 / 4] * 4)


def test_lying_beyond_the_mean_gains_nothing() -> None:
    """A client that says a million instead of ten gets no more than the others at the mean."""
    weights = aggregate([1.0, 2.0, 1e6]).weights
    assert weights[2].item() <= 1
    assert weights.isfinite().all()
    same = aggregate([5.0, 5.0, 5.0 + 3e-9]).weights
    assert same.tolist() == pytest.approx([1 / 3] * 3)


def test_loss_is_that_of_the_received_model() -> None:
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0]])
    prepared = FedCav().prepare(view(logits, logits, torch.tensor([0, 0])))
    expected = (log(exp(2) + exp(1)) - 2 + log(exp(0) + exp(1)) - 0) / 2
    assert prepared.scalars["received_loss"].item() == pytest.approx(expected)


def test_the_majority_takes_an_abnormal_model_back() -> None:
    method = FedCav(detection="majority")
    first = aggregate([0.5, 1.0, 0.8], sent=7.0, method=method)
    assert torch.equal(first.weights, aggregate([0.5, 1.0, 0.8]).weights)
    half = aggregate([1.1, 0.9, 1.0, 1.2], 8.0, first.memory, method)  # two of four
    assert half.models["model"].parameters.item() != 7
    most = aggregate([1.1, 0.9, 1.2], 8.0, first.memory, method)
    assert most.models["model"].parameters.tolist() == [7]
    assert most.models["model"].buffers.tolist() == [70]


def test_after_an_abnormal_round_a_model_is_never_taken_back() -> None:
    method = FedCav(detection="majority")
    first = aggregate([0.5, 1.0], sent=7.0, method=method)
    taken_back = aggregate([3.0, 3.0], 8.0, first.memory, method)
    again = aggregate([3.0, 3.0], 7.0, taken_back.memory, method)
    assert again.models["model"].parameters.item() == pytest.approx(1.5)
    assert again.memory["largest_loss"].item() == 3


def test_without_detection_nothing_is_taken_back() -> None:
    first = aggregate([0.5, 1.0], sent=7.0)
    assert aggregate([9.0, 9.0], 8.0, first.memory).models["model"].parameters.item() == 1.5
