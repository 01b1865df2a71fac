import pytest
import torch

from cadis.algorithm import Aggregation, LocalResult, ServerRound
from cadis.algorithm.methods import FedDyn
from cadis.rng import generator_for
from cadis.types import Message, ModelState, TensorState
from support import state_of, step_of, update_of

NOTHING, ZERO = torch.zeros(0), torch.zeros(0).long()


def aggregate(
    method: FedDyn, sent: float, trained: list[float], memory: TensorState, clients: int = 2
) -> Aggregation:
    def model(w: float) -> ModelState:
        return ModelState(torch.tensor([w]).double(), NOTHING, ZERO)

    updates = [update_of(n, 10, model(w)) for n, w in enumerate(trained)]
    server_round = ServerRound(1, (), clients, generator_for(0))
    return method.aggregate(server_round, updates, state_of(model(sent), memory))


def finish(
    method: FedDyn, trained: torch.Tensor, received: torch.Tensor, memory: TensorState
) -> TensorState:
    model = ModelState(trained, NOTHING, ZERO)
    training = LocalResult(model, trained, received, steps=1, lr=0.1, loss=0.0, effective_steps=1.0)
    return method.finish(training, Message(), memory).state


def test_nobody_moves() -> None:
    method = FedDyn()
    state: TensorState = {}
    for _ in range(5):
        result = aggregate(method, 3.0, [3.0, 3.0], state)
        state = result.memory
        assert result.models["model"].parameters.tolist() == [3.0]
        w = torch.tensor([3.0])
        assert finish(method, w, w, {"gradient": torch.tensor([0.7])})["gradient"].tolist() == [
            pytest.approx(0.7)
        ]


def test_server_by_hand() -> None:
    method = FedDyn(alpha=0.5)
    first = aggregate(method, 1.0, [2.0, 4.0], {})
    h = 0 - 0.5 / 2 * ((2 - 1) + (4 - 1))
    assert first.memory["correction"].item() == pytest.approx(h)
    assert first.models["model"].parameters.item() == pytest.approx((2 + 4) / 2 - h / 0.5)
    second = aggregate(method, 5.0, [4.0, 5.0], first.memory)
    h -= 0.5 / 2 * ((4 - 5) + (5 - 5))
    assert second.models["model"].parameters.item() == pytest.approx((4 + 5) / 2 - h / 0.5)


def test_server_counts_all_clients_under_partial_participation() -> None:
    result = aggregate(FedDyn(alpha=0.5), 1.0, [3.0], {}, clients=10)
    h = -0.5 / 10 * (3 - 1)
    assert result.models["model"].parameters.item() == pytest.approx(3 - h / 0.5)


def test_client_by_hand() -> None:
    method = FedDyn(alpha=0.5)
    w, w_t, g = torch.tensor([2.0, 1.0]), torch.tensor([1.0, 1.0]), torch.tensor([0.3, -0.2])
    penalty = method.penalty(step_of(w, w_t, {"gradient": g}))
    assert penalty is not None
    assert penalty.item() == pytest.approx(-(0.3 * 2 - 0.2 * 1) + 0.5 / 2 * (2 - 1) ** 2)
    after = finish(method, w, w_t, {"gradient": g})["gradient"]
    assert after.tolist() == pytest.approx([0.3 - 0.5 * (2 - 1), -0.2])


def test_finds_the_optimum_that_fedavg_misses() -> None:
    """Two quadratics, each solved exactly by its client: FedDyn must end at their joint optimum."""
    method, w = FedDyn(alpha=0.5), 0.0
    curvature, minimum = [1.0, 9.0], [0.0, 1.0]
    state: TensorState = {}
    memories: list[TensorState] = [{"gradient": torch.zeros(1).double()} for _ in range(2)]
    for _ in range(300):
        trained = []
        for n in range(2):  # argmin a (w - m)^2 / 2 - g w + alpha / 2 (w - w_t)^2
            g = memories[n]["gradient"].item()
            local = (curvature[n] * minimum[n] + g + 0.5 * w) / (curvature[n] + 0.5)
            trained.append(local)
            parts = torch.tensor([local]).double(), torch.tensor([w]).double()
            memories[n] = finish(method, *parts, memories[n])
        result = aggregate(method, w, trained, state)
        state, w = result.memory, result.models["model"].parameters.item()
    optimum = (1.0 * 0.0 + 9.0 * 1.0) / (1.0 + 9.0)
    assert w == pytest.approx(optimum, abs=1e-6)
    fedavg_limit = (curvature[0] * 0 / 1.0 + 1.0) / 2  # the mean of the clients' own optima
    assert abs(w - fedavg_limit) > 0.3
