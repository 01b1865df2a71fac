from math import log2

import pytest
import torch

from cadis.core import ModelState, generator_for
from cadis.methods import Aggregation, ClientUpdate, FedFA, LocalView, ServerRound, TensorState


def aggregate(method: FedFA, accuracies: dict[str, float], state: TensorState) -> Aggregation:
    nothing, zero = torch.zeros(0), torch.zeros(0).long()
    model = ModelState(torch.ones(1), nothing, zero)
    updates = [
        ClientUpdate(client, 20, model, {"received_accuracy": accuracy})
        for client, accuracy in accuracies.items()
    ]
    return method.aggregate(ServerRound(1, model, (), 9, generator_for(0)), updates, state)


def test_accuracy_information_by_hand() -> None:
    weights = aggregate(FedFA(), {"a": 0.6, "b": 0.2}, {}).weights
    information = [-log2(0.6 / 0.8), -log2(0.2 / 0.8)]
    assert weights.tolist() == pytest.approx([i / sum(information) for i in information])
    assert weights[1] > weights[0]


def test_participation_information_by_hand() -> None:
    method = FedFA(alpha=0.5, beta=0.5)
    state = aggregate(method, {"a": 0.5, "b": 0.5}, {}).method_state
    weights = aggregate(method, {"a": 0.5, "c": 0.5}, state).weights  # a: twice, c: once
    information = [-log2(1 - 2 / 3), -log2(1 - 1 / 3)]
    by_times = [i / sum(information) for i in information]
    assert weights.tolist() == pytest.approx([0.5 * 0.5 + 0.5 * part for part in by_times])


def test_zero_accuracy_counts_as_half_a_sample() -> None:
    weights = aggregate(FedFA(), {"a": 0.0, "b": 0.5}, {}).weights
    accuracies = [0.5 / 20, 0.5]
    information = [-log2(accuracy / sum(accuracies)) for accuracy in accuracies]
    assert weights.tolist() == pytest.approx([i / sum(information) for i in information])


@pytest.mark.parametrize("method", [FedFA(), FedFA(alpha=0, beta=1), FedFA(alpha=0, beta=0)])
def test_no_information_means_equal_weights(method: FedFA) -> None:
    assert aggregate(method, {"a": 0.7}, {}).weights.tolist() == [1]
    assert aggregate(method, {"a": 0.0, "b": 0.0}, {}).weights.tolist() == [0.5, 0.5]


def test_accuracy_is_that_of_the_received_model() -> None:
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0], [0.0, 9.0]])
    prepared = FedFA().prepare(LocalView(logits, logits, torch.tensor([0, 1, 1, 1])))
    assert prepared.metrics["received_accuracy"].item() == 3 / 4


def test_outputs_that_are_not_numbers_are_not_accurate() -> None:
    logits = torch.tensor([[torch.nan, 1.0], [torch.nan, torch.nan], [3.0, 1.0]])
    prepared = FedFA().prepare(LocalView(logits, logits, torch.tensor([0, 0, 0])))
    assert prepared.metrics["received_accuracy"].item() == pytest.approx(1 / 3)


def test_an_accuracy_beyond_all_is_all() -> None:
    told = aggregate(FedFA(), {"a": 1e300, "b": 0.5}, {}).weights
    assert torch.equal(told, aggregate(FedFA(), {"a": 1.0, "b": 0.5}, {}).weights)
