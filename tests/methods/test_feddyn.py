import pytest
import torch

from cadis.core import ModelState, generator_for
from cadis.methods import Aggregation, ClientUpdate, FedDyn, ServerRound, Step, TensorState

NOTHING, ZERO = torch.zeros(0), torch.zeros(0).long()


def aggregate(
    method: FedDyn, sent: float, trained: list[float], state: TensorState, clients: int = 2
) -> Aggregation:
    def model(w: float) -> ModelState:
        return ModelState(torch.tensor([w]).double(), NOTHING, ZERO)

    updates = [ClientUpdate(n, 10, model(w)) for n, w in enumerate(trained)]
    server = ServerRound(1, model(sent), (), clients, generator_for(0))
    return method.aggregate(server, updates, state)


def test_nobody_moves() -> None:
    method = FedDyn()
    state: TensorState = {}
    for _ in range(5):
        result = aggregate(method, 3.0, [3.0, 3.0], state)
        state = result.method_state
        assert result.state.parameters.tolist() == [3.0]
        w = torch.tensor([3.0])
        assert method.finish(w, w, {"gradient": torch.tensor([0.7])})["gradient"].tolist() == [
            pytest.approx(0.7)
        ]


def test_server_by_hand() -> None:
    method = FedDyn(alpha=0.5)
    first = aggregate(method, 1.0, [2.0, 4.0], {})
    h = 0 - 0.5 / 2 * ((2 - 1) + (4 - 1))
    assert first.method_state["correction"].item() == pytest.approx(h)
    assert first.state.parameters.item() == pytest.approx((2 + 4) / 2 - h / 0.5)
    second = aggregate(method, 5.0, [4.0, 5.0], first.method_state)
    h -= 0.5 / 2 * ((4 - 5) + (5 - 5))
    assert second.state.parameters.item() == pytest.approx((4 + 5) / 2 - h / 0.5)


def test_server_counts_all_clients_under_partial_participation() -> None:
    result = aggregate(FedDyn(alpha=0.5), 1.0, [3.0], {}, clients=10)
    h = -0.5 / 10 * (3 - 1)
    assert result.state.parameters.item() == pytest.approx(3 - h / 0.5)


def test_client_by_hand() -> None:
    method, unused = FedDyn(alpha=0.5), torch.zeros(1)
    w, w_t, g = torch.tensor([2.0, 1.0]), torch.tensor([1.0, 1.0]), torch.tensor([0.3, -0.2])
    penalty = method.penalty(Step(unused, unused, unused, w, w_t, {}, {"gradient": g}))
    assert penalty is not None
    assert penalty.item() == pytest.approx(-(0.3 * 2 - 0.2 * 1) + 0.5 / 2 * (2 - 1) ** 2)
    after = method.finish(w, w_t, {"gradient": g})["gradient"]
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
            memories[n] = method.finish(*parts, memories[n])
        result = aggregate(method, w, trained, state)
        state, w = result.method_state, result.state.parameters.item()
    optimum = (1.0 * 0.0 + 9.0 * 1.0) / (1.0 + 9.0)
    assert w == pytest.approx(optimum, abs=1e-6)
    fedavg_limit = (curvature[0] * 0 / 1.0 + 1.0) / 2  # the mean of the clients' own optima
    assert abs(w - fedavg_limit) > 0.3
