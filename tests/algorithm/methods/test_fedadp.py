from math import acos, exp, pi, sqrt

import pytest
import torch
from torch import Tensor

from cadis.algorithm import ServerRound, Weighing
from cadis.algorithm.methods import FedAdp
from cadis.algorithm.methods.fedadp import angles_to_mean
from cadis.rng import generator_for
from cadis.types import ModelState, TensorState
from support import state_of, update_of

NOTHING, ZERO = torch.zeros(0), torch.zeros(0).long()


def model(parameters: Tensor) -> ModelState:
    return ModelState(parameters, NOTHING, ZERO)


def weigh(
    trained: dict[str, tuple[int, list[float]]],
    memory: TensorState | None = None,
    alpha: float = 5.0,
) -> Weighing:
    """Of models that were trained from zeros."""
    updates = [update_of(c, n, model(torch.tensor(w))) for c, (n, w) in trained.items()]
    sent = model(torch.zeros_like(updates[0].model.parameters))
    server_round = ServerRound(1, (), 9, generator_for(0))
    return FedAdp(alpha).weigh(server_round, updates, state_of(sent, memory))


def shares(parts: list[float]) -> list[float]:
    return [part / sum(parts) for part in parts]


def gompertz(angle: float, alpha: float = 5.0) -> float:
    return alpha * (1 - exp(-exp(-alpha * (angle - 1))))


def test_weights_by_hand() -> None:
    found = weigh({"a": (30, [1.0, 0.0]), "b": (10, [0.0, 1.0])})
    mean = [3 / 4, 1 / 4]
    length = sqrt(mean[0] ** 2 + mean[1] ** 2)
    angles = [acos(mean[0] / length), acos(mean[1] / length)]
    assert found.memory["angles"].tolist() == pytest.approx(angles)
    expected = shares([30 * exp(gompertz(angles[0])), 10 * exp(gompertz(angles[1]))])
    assert found.weights.tolist() == pytest.approx(expected)
    assert found.weights[0] > 30 / 40


def test_angles_are_averaged_over_a_clients_own_rounds() -> None:
    first = weigh({"a": (10, [1.0, 0.0]), "b": (10, [0.0, 1.0])})  # both at 45 degrees
    second = weigh({"a": (10, [1.0, 0.0]), "c": (10, [1.0, 0.0])}, first.memory)
    a, c = (1 * pi / 4 + 0) / 2, 0.0
    expected = shares([exp(gompertz(a)), exp(gompertz(c))])
    assert second.weights.tolist() == pytest.approx(expected)
    assert second.memory["times"].tolist() == [2, 1, 1]
    third = weigh({"a": (10, [1.0, 0.0]), "b": (10, [0.0, 1.0])}, second.memory)
    a, b = (2 * a + pi / 4) / 3, (1 * pi / 4 + pi / 4) / 2
    assert third.memory["angles"].tolist() == pytest.approx([a, b, c])


def test_equal_angles_are_fedavg() -> None:
    found = weigh({"a": (30, [2.0, 1.0]), "b": (10, [4.0, 2.0]), "c": (60, [1.0, 0.5])})
    assert found.weights.tolist() == pytest.approx([0.3, 0.1, 0.6])


@pytest.mark.parametrize("trained", [{"a": [0.0], "b": [0.0]}, {"a": [1.0], "b": [-1.0]}])
def test_without_a_mean_update_it_is_fedavg(trained: dict[str, list[float]]) -> None:
    found = weigh({client: (10, w) for client, w in trained.items()})
    assert found.memory["angles"].tolist() == [pi / 2, pi / 2]
    assert found.weights.tolist() == pytest.approx([0.5, 0.5])


def test_gompertz_falls_from_alpha_to_nothing() -> None:
    values = FedAdp(5.0).contribution(torch.linspace(0, pi, 50).double())
    assert (values.diff() <= 0).all()
    assert values[0].item() == pytest.approx(5, abs=1e-6)
    assert values[-1].item() == pytest.approx(0, abs=1e-3)


def test_huge_alpha_gives_finite_weights() -> None:
    found = weigh({"a": (10, [1.0, 0.0]), "b": (10, [-1.0, 0.1])}, alpha=1e4)
    assert found.weights.isfinite().all()
    assert found.weights.sum().item() == pytest.approx(1)


def test_angles_are_those_of_a_plain_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    sent = torch.randn(100_000, generator=generator)
    moved = [0.01 * torch.randn(100_000, generator=generator) + 0.005 for _ in range(4)]
    parts = torch.tensor([0.1, 0.2, 0.3, 0.4]).double()
    updates = [update_of(n, 1, model(sent + own)) for n, own in enumerate(moved)]
    mean = sum(s * u.model.parameters.double() for s, u in zip(parts, updates, strict=True))
    mean = mean - sent.double()
    expected = [
        torch.cosine_similarity(update.model.parameters.double() - sent.double(), mean, dim=0)
        for update in updates
    ]
    found = angles_to_mean(updates, sent, parts)
    torch.testing.assert_close(found.cos(), torch.stack(expected), atol=1e-6, rtol=0)
