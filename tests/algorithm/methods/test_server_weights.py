"""Aggregation weights of FedFA, FedAdp and FedCav by hand."""

from math import acos, exp, log, log2, pi, sqrt

import pytest
import torch

from cadis.algorithm import Aggregation, ClientWeights
from cadis.algorithm.methods import FedAdp, FedCav, FedFA
from cadis.algorithm.methods.fedadp import compute_angles
from cadis.types import ModelState, TensorState
from method_support import make_server_round
from support import flat_model, make_model_outputs, make_server_state, make_update


def normalize(parts: list[float]) -> list[float]:
    return [part / sum(parts) for part in parts]


def weigh_fedfa(method: FedFA, accuracies: dict[str, float], tensors: TensorState) -> ClientWeights:
    updates = [
        make_update(client, 20, flat_model(1.0), received_accuracy=accuracy)
        for client, accuracy in accuracies.items()
    ]
    return method.weigh(make_server_round(), updates, make_server_state(flat_model(1.0), tensors))


@pytest.mark.parametrize("accuracy", [0.2, 0.0])
def test_accuracy_information_of_fedfa_by_hand(accuracy: float) -> None:
    """An accuracy of zero counts as half a sample of twenty."""
    weights = weigh_fedfa(FedFA(), {"a": 0.6, "b": accuracy}, {}).weights
    accuracies = [0.6, accuracy or 0.5 / 20]
    information = [-log2(accuracy / sum(accuracies)) for accuracy in accuracies]
    assert weights.tolist() == pytest.approx(normalize(information))
    assert weights[1] > weights[0]


def test_participation_information_of_fedfa_by_hand() -> None:
    method = FedFA(alpha=0.5, beta=0.5)
    state = weigh_fedfa(method, {"a": 0.5, "b": 0.5}, {}).tensors
    weights = weigh_fedfa(method, {"a": 0.5, "c": 0.5}, state).weights  # a: twice, c: once
    by_times = normalize([-log2(1 - 2 / 3), -log2(1 - 1 / 3)])
    assert weights.tolist() == pytest.approx([0.5 * 0.5 + 0.5 * part for part in by_times])


@pytest.mark.parametrize("method", [FedFA(), FedFA(alpha=0, beta=1), FedFA(alpha=0, beta=0)])
def test_weights_without_information_are_equal(method: FedFA) -> None:
    assert weigh_fedfa(method, {"a": 0.7}, {}).weights.tolist() == [1]
    assert weigh_fedfa(method, {"a": 0.0, "b": 0.0}, {}).weights.tolist() == [0.5, 0.5]


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
    """NaN outputs count as wrong."""
    outputs = torch.tensor(logits)
    extras = FedFA().prepare(make_model_outputs(outputs, outputs, torch.tensor(labels)))
    assert extras.scalars["received_accuracy"].item() == pytest.approx(expected)


def test_an_accuracy_above_one_counts_as_one() -> None:
    accuracy = weigh_fedfa(FedFA(), {"a": 1e300, "b": 0.5}, {}).weights
    assert torch.equal(accuracy, weigh_fedfa(FedFA(), {"a": 1.0, "b": 0.5}, {}).weights)


def weigh_fedadp(
    trained: dict[str, tuple[int, list[float]]],
    tensors: TensorState | None = None,
    alpha: float = 5.0,
) -> ClientWeights:
    """Return the weights of models trained from zeros."""
    updates = [make_update(c, n, flat_model(*w)) for c, (n, w) in trained.items()]
    sent = flat_model(*(0.0 for _ in updates[0].model.parameters))
    return FedAdp(alpha).weigh(make_server_round(), updates, make_server_state(sent, tensors))


def compute_gompertz(angle: float, alpha: float = 5.0) -> float:
    return alpha * (1 - exp(-exp(-alpha * (angle - 1))))


def test_weights_of_fedadp_by_hand() -> None:
    result = weigh_fedadp({"a": (30, [1.0, 0.0]), "b": (10, [0.0, 1.0])})
    mean = [3 / 4, 1 / 4]
    length = sqrt(mean[0] ** 2 + mean[1] ** 2)
    angles = [acos(mean[0] / length), acos(mean[1] / length)]
    assert result.tensors["angles"].tolist() == pytest.approx(angles)
    expected = normalize(
        [30 * exp(compute_gompertz(angles[0])), 10 * exp(compute_gompertz(angles[1]))]
    )
    assert result.weights.tolist() == pytest.approx(expected)
    assert result.weights[0] > 30 / 40


def test_angles_are_averaged_over_the_rounds_of_a_client() -> None:
    first = weigh_fedadp({"a": (10, [1.0, 0.0]), "b": (10, [0.0, 1.0])})  # both at 45 degrees
    second = weigh_fedadp({"a": (10, [1.0, 0.0]), "c": (10, [1.0, 0.0])}, first.tensors)
    a, c = (1 * pi / 4 + 0) / 2, 0.0
    expected = normalize([exp(compute_gompertz(a)), exp(compute_gompertz(c))])
    assert second.weights.tolist() == pytest.approx(expected)
    assert second.tensors["times"].tolist() == [2, 1, 1]
    third = weigh_fedadp({"a": (10, [1.0, 0.0]), "b": (10, [0.0, 1.0])}, second.tensors)
    a, b = (2 * a + pi / 4) / 3, (1 * pi / 4 + pi / 4) / 2
    assert third.tensors["angles"].tolist() == pytest.approx([a, b, c])


def test_equal_angles_give_the_weights_of_fedavg() -> None:
    result = weigh_fedadp({"a": (30, [2.0, 1.0]), "b": (10, [4.0, 2.0]), "c": (60, [1.0, 0.5])})
    assert result.weights.tolist() == pytest.approx([0.3, 0.1, 0.6])


@pytest.mark.parametrize("trained", [{"a": [0.0], "b": [0.0]}, {"a": [1.0], "b": [-1.0]}])
def test_a_zero_mean_update_gives_the_weights_of_fedavg(trained: dict[str, list[float]]) -> None:
    result = weigh_fedadp({client: (10, w) for client, w in trained.items()})
    assert result.tensors["angles"].tolist() == [pi / 2, pi / 2]
    assert result.weights.tolist() == pytest.approx([0.5, 0.5])


def test_gompertz_function_falls_from_alpha_to_zero() -> None:
    values = FedAdp(5.0).compute_contribution(torch.linspace(0, pi, 50).double())
    assert (values.diff() <= 0).all()
    assert values[0].item() == pytest.approx(5, abs=1e-6)
    assert values[-1].item() == pytest.approx(0, abs=1e-3)
    result = weigh_fedadp({"a": (10, [1.0, 0.0]), "b": (10, [-1.0, 0.1])}, alpha=1e4)
    assert result.weights.isfinite().all()
    assert result.weights.sum().item() == pytest.approx(1)


def test_angles_match_a_plain_computation() -> None:
    generator = torch.Generator().manual_seed(0)
    sent = torch.randn(100_000, generator=generator)
    changes = [0.01 * torch.randn(100_000, generator=generator) + 0.005 for _ in range(4)]
    parts = torch.tensor([0.1, 0.2, 0.3, 0.4]).double()
    updates = [
        make_update(n, 1, flat_model(*(sent + change).tolist())) for n, change in enumerate(changes)
    ]
    changes = [update.model.parameters.double() - sent.double() for update in updates]
    mean = sum(s * change for s, change in zip(parts, changes, strict=True))
    expected = [torch.cosine_similarity(change, mean, dim=0) for change in changes]
    result = compute_angles(updates, sent, parts)
    torch.testing.assert_close(result.cos(), torch.stack(expected), atol=1e-6, rtol=0)


def make_model(w: float) -> ModelState:
    return ModelState(torch.tensor([w]), torch.tensor([10 * w]), torch.zeros(0).long())


def aggregate_fedcav(
    losses: list[float],
    sent: float = 0.0,
    tensors: TensorState | None = None,
    method: FedCav | None = None,
) -> Aggregation:
    """Aggregate clients with models 1, 2, ... and different numbers of samples."""
    updates = [
        make_update(index, 10 + 7 * index, make_model(1.0 + index), received_loss=loss)
        for index, loss in enumerate(losses)
    ]
    state = make_server_state(make_model(sent), tensors)
    return (method or FedCav()).aggregate(make_server_round(), updates, state)


def test_weights_of_fedcav_by_hand() -> None:
    result = aggregate_fedcav([0.5, 1.0, 3.0])
    mean = (0.5 + 1.0 + 3.0) / 3
    expected = normalize([exp(0.5), exp(1.0), exp(mean)])
    assert result.weights.tolist() == pytest.approx(expected)
    w = sum(share * (1 + index) for index, share in enumerate(expected))
    assert result.models["model"].parameters.item() == pytest.approx(w)
    assert result.models["model"].buffers.item() == pytest.approx(10 * w)
    assert not result.tensors
    assert aggregate_fedcav([0.7, 0.7, 0.7, 0.7]).weights.tolist() == pytest.approx([1 / 4] * 4)


def test_losses_above_the_mean_are_clipped() -> None:
    """A client gains nothing by sending a million instead of ten."""
    weights = aggregate_fedcav([1.0, 2.0, 1e6]).weights
    assert weights[2].item() <= 1
    assert weights.isfinite().all()
    same = aggregate_fedcav([5.0, 5.0, 5.0 + 3e-9]).weights
    assert same.tolist() == pytest.approx([1 / 3] * 3)


def test_loss_is_that_of_the_received_model() -> None:
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0]])
    extras = FedCav().prepare(make_model_outputs(logits, logits, torch.tensor([0, 0])))
    expected = (log(exp(2) + exp(1)) - 2 + log(exp(0) + exp(1)) - 0) / 2
    assert extras.scalars["received_loss"].item() == pytest.approx(expected)


def test_the_majority_reverts_an_abnormal_model() -> None:
    method = FedCav(detection="majority")
    first = aggregate_fedcav([0.5, 1.0, 0.8], sent=7.0, method=method)
    assert torch.equal(first.weights, aggregate_fedcav([0.5, 1.0, 0.8]).weights)
    half = aggregate_fedcav([1.1, 0.9, 1.0, 1.2], 8.0, first.tensors, method)  # two of four
    assert half.models["model"].parameters.item() != 7
    majority = aggregate_fedcav([1.1, 0.9, 1.2], 8.0, first.tensors, method)
    assert majority.models["model"].parameters.tolist() == [7]
    assert majority.models["model"].buffers.tolist() == [70]
    off = aggregate_fedcav(
        [9.0, 9.0], 8.0, aggregate_fedcav([0.5, 1.0], sent=7.0).tensors
    )  # without detection
    assert off.models["model"].parameters.item() == 1.5


def test_the_round_after_an_abnormal_one_is_never_reverted() -> None:
    method = FedCav(detection="majority")
    first = aggregate_fedcav([0.5, 1.0], sent=7.0, method=method)
    reverted = aggregate_fedcav([3.0, 3.0], 8.0, first.tensors, method)
    again = aggregate_fedcav([3.0, 3.0], 7.0, reverted.tensors, method)
    assert again.models["model"].parameters.item() == pytest.approx(1.5)
    assert again.tensors["largest_loss"].item() == 3
