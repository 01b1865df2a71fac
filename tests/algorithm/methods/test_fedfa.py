from math import log2

import pytest
import torch

from cadis.algorithm import ServerRound, Weighing
from cadis.algorithm.methods import FedFA
from cadis.rng import generator_for
from cadis.types import ModelState, TensorState
from support import state_of, update_of, view


def weigh(method: FedFA, accuracies: dict[str, float], memory: TensorState) -> Weighing:
    nothing, zero = torch.zeros(0), torch.zeros(0).long()
    model = ModelState(torch.ones(1), nothing, zero)
    updates = [
        update_of(client, 20, model, received_accuracy=accuracy)
        for client, accuracy in accuracies.items()
    ]
    server_round = ServerRound(1, (), 9, generator_for(0))
    return method.weigh(server_round, updates, state_of(model, memory))


def test_accuracy_information_by_hand() -> None:
    weights = weigh(FedFA(), {"a": 0.6, "b": 0.2}, {}).weights
    information = [-log2(0.6 / 0.8), -log2(0.2 / 0.8)]
    assert weights.tolist() == pytest.approx([i / sum(information) for i in information])
    assert weights[1] > weights[0]


def test_participation_information_by_hand() -> None:
    method = FedFA(alpha=0.5, beta=0.5)
    state = weigh(method, {"a": 0.5, "b": 0.5}, {}).memory
    weights = weigh(method, {"a": 0.5, "c": 0.5}, state).weights  # a: twice, c: once
    information = [-log2(1 - 2 / 3), -log2(1 - 1 / 3)]
    by_times = [i / sum(information) for i in information]
    assert weights.tolist() == pytest.approx([0.5 * 0.5 + 0.5 * part for part in by_times])


def test_zero_accuracy_counts_as_half_a_sample() -> None:
    weights = weigh(FedFA(), {"a": 0.0, "b": 0.5}, {}).weights
    accuracies = [0.5 / 20, 0.5]
    information = [-log2(accuracy / sum(accuracies)) for accuracy in accuracies]
    assert weights.tolist() == pytest.approx([i / sum(information) for i in information])


@pytest.mark.parametrize("method", [FedFA(), FedFA(alpha=0, beta=1), FedFA(alpha=0, beta=0)])
def test_no_information_means_equal_weights(method: FedFA) -> None:
    assert weigh(method, {"a": 0.7}, {}).weights.tolist() == [1]
    assert weigh(method, {"a": 0.0, "b": 0.0}, {}).weights.tolist() == [0.5, 0.5]


def test_accuracy_is_that_of_the_received_model() -> None:
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0], [0.0, 9.0]])
    prepared = FedFA().prepare(view(logits, logits, torch.tensor([0, 1, 1, 1])))
    assert prepared.scalars["received_accuracy"].item() == 3 / 4


def test_outputs_that_are_not_numbers_are_not_accurate() -> None:
    logits = torch.tensor([[torch.nan, 1.0], [torch.nan, torch.nan], [3.0, 1.0]])
    prepared = FedFA().prepare(view(logits, logits, torch.tensor([0, 0, 0])))
    assert prepared.scalars["received_accuracy"].item() == pytest.approx(1 / 3)


def test_an_accuracy_beyond_all_is_all() -> None:
    told = weigh(FedFA(), {"a": 1e300, "b": 0.5}, {}).weights
    assert torch.equal(told, weigh(FedFA(), {"a": 1.0, "b": 0.5}, {}).weights)
