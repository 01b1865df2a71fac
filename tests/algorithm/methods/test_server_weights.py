"""FedFA, FedAdp and FedCav: weights that the server makes, by hand."""

from math import acos, exp, log, log2, pi, sqrt

import pytest
import torch

from cadis.algorithm import Aggregation, Weighing
from cadis.algorithm.methods import FedAdp, FedCav, FedFA
from cadis.algorithm.methods.fedadp import angles_to_mean
from cadis.types import ModelState, TensorState
from method_support import server_round
from support import flat_model, state_of, update_of, view


def shares(parts: list[float]) -> list[float]:
    return [part / sum(parts) for part in parts]


def fedfa(method: FedFA, accuracies: dict[str, float], memory: TensorState) -> Weighing:
    updates = [
        update_of(client, 20, flat_model(1.0), received_accuracy=accuracy)
        for client, accuracy in accuracies.items()
    ]
    return method.weigh(server_round(), updates, state_of(flat_model(1.0), memory))


@pytest.mark.parametrize("told", [0.2, 0.0])
def test_fedfas_accuracy_information_by_hand(told: float) -> None:
    """An accuracy of zero counts as half a sample of twenty."""
    weights = fedfa(FedFA(), {"a": 0.6, "b": told}, {}).weights
    accuracies = [0.6, told or 0.5 / 20]
    information = [-log2(accuracy / sum(accuracies)) for accuracy in accuracies]
    assert weights.tolist() == pytest.approx(shares(information))
    assert weights[1] > weights[0]


def test_fedfas_participation_information_by_hand() -> None:
    method = FedFA(alpha=0.5, beta=0.5)
    state = fedfa(method, {"a": 0.5, "b": 0.5}, {}).memory
    weights = fedfa(method, {"a": 0.5, "c": 0.5}, state).weights  # a: twice, c: once
    by_times = shares([-log2(1 - 2 / 3), -log2(1 - 1 / 3)])
    assert weights.tolist() == pytest.approx([0.5 * 0.5 + 0.5 * part for part in by_times])


@pytest.mark.parametrize("method", [FedFA(), FedFA(alpha=0, beta=1), FedFA(alpha=0, beta=0)])
def test_no_information_means_equal_weights(method: FedFA) -> None:
    assert fedfa(method, {"a": 0.7}, {}).weights.tolist() == [1]
    assert fedfa(method, {"a": 0.0, "b": 0.0}, {}).weights.tolist() == [0.5, 0.5]


NAN = torch.nan


@pytest.mark.parametrize(
    ("logits", "labels", "expected"),
    [
        ([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0], [0.0, 9.0]], [0, 1, 1, 1], 3 / 4),
        ([[NAN, 1.0], [NAN, NAN], [3.0, 1.0]], [0, 0, 0], 1 / 3),
    ],
)
def test_accuracy_is_that_of_the_received_model(
    logits: list[list[float]], labels: list[int], expected: float
) -> None:
    """Outputs that are not numbers are not accurate."""
    outputs = torch.tensor(logits)
    prepared = FedFA().prepare(view(outputs, outputs, torch.tensor(labels)))
    assert prepared.scalars["received_accuracy"].item() == pytest.approx(expected)


def test_an_accuracy_beyond_all_is_all() -> None:
    told = fedfa(FedFA(), {"a": 1e300, "b": 0.5}, {}).weights
    assert torch.equal(told, fedfa(FedFA(), {"a": 1.0, "b": 0.5}, {}).weights)


def fedadp(
    trained: dict[str, tuple[int, list[float]]],
    memory: TensorState | None = None,
    alpha: float = 5.0,
) -> Weighing:
    """Of models that were trained from zeros."""
    updates = [update_of(c, n, flat_model(*w)) for c, (n, w) in trained.items()]
    sent = flat_model(*(0.0 for _ in updates[0].model.parameters))
    return FedAdp(alpha).weigh(server_round(), updates, state_of(sent, memory))


def gompertz(angle: float, alpha: float = 5.0) -> float:
    return alpha * (1 - exp(-exp(-alpha * (angle - 1))))


def test_fedadps_weights_by_hand() -> None:
    found = fedadp({"a": (30, [1.0, 0.0]), "b": (10, [0.0, 1.0])})
    mean = [3 / 4, 1 / 4]
    length = sqrt(mean[0] ** 2 + mean[1] ** 2)
    angles = [acos(mean[0] / length), acos(mean[1] / length)]
    assert found.memory["angles"].tolist() == pytest.approx(angles)
    expected = shares([30 * exp(gompertz(angles[0])), 10 * exp(gompertz(angles[1]))])
    assert found.weights.tolist() == pytest.approx(expected)
    assert found.weights[0] > 30 / 40


def test_angles_are_averaged_over_a_clients_own_rounds() -> None:
    first = fedadp({"a": (10, [1.0, 0.0]), "b": (10, [0.0, 1.0])})  # both at 45 degrees
    second = fedadp({"a": (10, [1.0, 0.0]), "c": (10, [1.0, 0.0])}, first.memory)
    a, c = (1 * pi / 4 + 0) / 2, 0.0
    expected = shares([exp(gompertz(a)), exp(gompertz(c))])
    assert second.weights.tolist() == pytest.approx(expected)
    assert second.memory["times"].tolist() == [2, 1, 1]
    third = fedadp({"a": (10, [1.0, 0.0]), "b": (10, [0.0, 1.0])}, second.memory)
    a, b = (2 * a + pi / 4) / 3, (1 * pi / 4 + pi / 4) / 2
    assert third.memory["angles"].tolist() == pytest.approx([a, b, c])


def test_equal_angles_are_fedavg() -> None:
    found = fedadp({"a": (30, [2.0, 1.0]), "b": (10, [4.0, 2.0]), "c": (60, [1.0, 0.5])})
    assert found.weights.tolist() == pytest.approx([0.3, 0.1, 0.6])


@pytest.mark.parametrize("trained", [{"a": [0.0], "b": [0.0]}, {"a": [1.0], "b": [-1.0]}])
def test_without_a_mean_update_it_is_fedavg(trained: dict[str, list[float]]) -> None:
    found = fedadp({client: (10, w) for client, w in trained.items()})
    assert found.memory["angles"].tolist() == [pi / 2, pi / 2]
    assert found.weights.tolist() == pytest.approx([0.5, 0.5])


def test_gompertz_falls_from_alpha_to_nothing_and_a_huge_alpha_gives_finite_weights() -> None:
    values = FedAdp(5.0).contribution(torch.linspace(0, pi, 50).double())
    assert (values.diff() <= 0).all()
    assert values[0].item() == pytest.approx(5, abs=1e-6)
    assert values[-1].item() == pytest.approx(0, abs=1e-3)
    found = fedadp({"a": (10, [1.0, 0.0]), "b": (10, [-1.0, 0.1])}, alpha=1e4)
    assert found.weights.isfinite().all()
    assert found.weights.sum().item() == pytest.approx(1)


def test_angles_are_those_of_a_plain_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    sent = torch.randn(100_000, generator=generator)
    moved = [0.01 * torch.randn(100_000, generator=generator) + 0.005 for _ in range(4)]
    parts = torch.tensor([0.1, 0.2, 0.3, 0.4]).double()
    updates = [update_of(n, 1, flat_model(*(sent + own).tolist())) for n, own in enumerate(moved)]
    changes = [update.model.parameters.double() - sent.double() for update in updates]
    mean = sum(s * change for s, change in zip(parts, changes, strict=True))
    expected = [torch.cosine_similarity(change, mean, dim=0) for change in changes]
    found = angles_to_mean(updates, sent, parts)
    torch.testing.assert_close(found.cos(), torch.stack(expected), atol=1e-6, rtol=0)


def model(w: float) -> ModelState:
    return ModelState(torch.tensor([w]), torch.tensor([10 * w]), torch.zeros(0).long())


def fedcav(
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
    state = state_of(model(sent), memory)
    return (method or FedCav()).aggregate(server_round(), updates, state)


def test_softmax_of_clipped_losses_by_hand() -> None:
    found = fedcav([0.5, 1.0, 3.0])
    mean = (0.5 + 1.0 + 3.0) / 3
    expected = shares([exp(0.5), exp(1.0), exp(mean)])
    assert found.weights.tolist() == pytest.approx(expected)
    w = sum(share * (1 + place) for place, share in enumerate(expected))
    assert found.models["model"].parameters.item() == pytest.approx(w)
    assert found.models["model"].buffers.item() == pytest.approx(10 * w)
    assert not found.memory
    assert fedcav([0.7, 0.7, 0.7, 0.7]).weights.tolist() == pytest.approx([1 / 4] * 4)


def test_lying_beyond_the_mean_gains_nothing() -> None:
    """A client that says a million instead of ten gets no more than the others at the mean."""
    weights = fedcav([1.0, 2.0, 1e6]).weights
    assert weights[2].item() <= 1
    assert weights.isfinite().all()
    same = fedcav([5.0, 5.0, 5.0 + 3e-9]).weights
    assert same.tolist() == pytest.approx([1 / 3] * 3)


def test_loss_is_that_of_the_received_model() -> None:
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0]])
    prepared = FedCav().prepare(view(logits, logits, torch.tensor([0, 0])))
    expected = (log(exp(2) + exp(1)) - 2 + log(exp(0) + exp(1)) - 0) / 2
    assert prepared.scalars["received_loss"].item() == pytest.approx(expected)


def test_the_majority_takes_an_abnormal_model_back() -> None:
    method = FedCav(detection="majority")
    first = fedcav([0.5, 1.0, 0.8], sent=7.0, method=method)
    assert torch.equal(first.weights, fedcav([0.5, 1.0, 0.8]).weights)
    half = fedcav([1.1, 0.9, 1.0, 1.2], 8.0, first.memory, method)  # two of four
    assert half.models["model"].parameters.item() != 7
    most = fedcav([1.1, 0.9, 1.2], 8.0, first.memory, method)
    assert most.models["model"].parameters.tolist() == [7]
    assert most.models["model"].buffers.tolist() == [70]
    off = fedcav([9.0, 9.0], 8.0, fedcav([0.5, 1.0], sent=7.0).memory)  # without detection
    assert off.models["model"].parameters.item() == 1.5


def test_after_an_abnormal_round_a_model_is_never_taken_back() -> None:
    method = FedCav(detection="majority")
    first = fedcav([0.5, 1.0], sent=7.0, method=method)
    taken_back = fedcav([3.0, 3.0], 8.0, first.memory, method)
    again = fedcav([3.0, 3.0], 7.0, taken_back.memory, method)
    assert again.models["model"].parameters.item() == pytest.approx(1.5)
    assert again.memory["largest_loss"].item() == 3
