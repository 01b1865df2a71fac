"""FedDyn, FedNova and SCAFFOLD: arithmetic by hand, known optima, and a plain loop."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cadis.algorithm import Aggregation, Step
from cadis.algorithm.local_optimizers import SGD
from cadis.algorithm.methods import SCAFFOLD, FedAvg, FedDyn, FedNova
from cadis.training.batch_training import compute_effective_steps
from cadis.types import Message, ModelState, TensorState
from method_support import compute_penalty, make_local_result, make_server_round
from support import (
    check_matches_plain_loop,
    flat_model,
    get_model,
    iter_plain_batches,
    list_gradients,
    make_server_state,
    make_step,
    make_update,
    run_rounds,
    small_federation,
    small_model,
    small_settings,
)


def aggregate_feddyn(
    method: FedDyn, sent: float, trained: list[float], tensors: TensorState, clients: int = 2
) -> Aggregation:
    def model(w: float) -> ModelState:
        return ModelState(torch.tensor([w]).double(), torch.zeros(0), torch.zeros(0).long())

    updates = [make_update(n, 10, model(w)) for n, w in enumerate(trained)]
    known = make_server_round(num_clients=clients)
    return method.aggregate(known, updates, make_server_state(model(sent), tensors))


def finish_feddyn(
    method: FedDyn, trained: Tensor, received: Tensor, tensors: TensorState
) -> TensorState:
    return method.finish(make_local_result(trained, received), Message(), tensors).state


def test_feddyn_without_movement() -> None:
    method = FedDyn()
    state: TensorState = {}
    for _ in range(5):
        result = aggregate_feddyn(method, 3.0, [3.0, 3.0], state)
        state = result.tensors
        assert result.models["model"].parameters.tolist() == [3.0]
    w = torch.tensor([3.0])
    gradient = finish_feddyn(method, w, w, {"gradient": torch.tensor([0.7])})["gradient"]
    assert gradient.tolist() == pytest.approx([0.7])


def test_feddyn_server_by_hand() -> None:
    method = FedDyn(alpha=0.5)
    first = aggregate_feddyn(method, 1.0, [2.0, 4.0], {})
    h = 0 - 0.5 / 2 * ((2 - 1) + (4 - 1))
    assert first.tensors["correction"].item() == pytest.approx(h)
    assert first.models["model"].parameters.item() == pytest.approx((2 + 4) / 2 - h / 0.5)
    second = aggregate_feddyn(method, 5.0, [4.0, 5.0], first.tensors)
    h -= 0.5 / 2 * ((4 - 5) + (5 - 5))
    assert second.models["model"].parameters.item() == pytest.approx((4 + 5) / 2 - h / 0.5)


def test_feddyn_server_divides_by_all_clients() -> None:
    result = aggregate_feddyn(FedDyn(alpha=0.5), 1.0, [3.0], {}, clients=10)
    h = -0.5 / 10 * (3 - 1)
    assert result.models["model"].parameters.item() == pytest.approx(3 - h / 0.5)


def test_feddyn_client_by_hand() -> None:
    method = FedDyn(alpha=0.5)
    w, w_t, g = torch.tensor([2.0, 1.0]), torch.tensor([1.0, 1.0]), torch.tensor([0.3, -0.2])
    penalty = compute_penalty(method, make_step(w, w_t, {"gradient": g}))
    assert penalty.item() == pytest.approx(-(0.3 * 2 - 0.2 * 1) + 0.5 / 2 * (2 - 1) ** 2)
    after = finish_feddyn(method, w, w_t, {"gradient": g})["gradient"]
    assert after.tolist() == pytest.approx([0.3 - 0.5 * (2 - 1), -0.2])


def test_feddyn_finds_the_optimum_that_fedavg_misses() -> None:
    """Each client solves its quadratic loss exactly; FedDyn converges to the joint optimum."""
    method, w = FedDyn(alpha=0.5), 0.0
    curvature, minimum = [1.0, 9.0], [0.0, 1.0]
    state: TensorState = {}
    client_states: list[TensorState] = [{"gradient": torch.zeros(1).double()} for _ in range(2)]
    for _ in range(300):
        trained = []
        for n in range(2):  # argmin a (w - m)^2 / 2 - g w + alpha / 2 (w - w_t)^2
            g = client_states[n]["gradient"].item()
            local = (curvature[n] * minimum[n] + g + 0.5 * w) / (curvature[n] + 0.5)
            trained.append(local)
            parts = torch.tensor([local]).double(), torch.tensor([w]).double()
            client_states[n] = finish_feddyn(method, *parts, client_states[n])
        result = aggregate_feddyn(method, w, trained, state)
        state, w = result.tensors, result.models["model"].parameters.item()
    optimum = (1.0 * 0.0 + 9.0 * 1.0) / (1.0 + 9.0)
    assert w == pytest.approx(optimum, abs=1e-6)
    fedavg_limit = (curvature[0] * 0 / 1.0 + 1.0) / 2  # the mean of the local optima
    assert abs(w - fedavg_limit) > 0.3


def test_fednova_by_hand() -> None:
    """Two clients with 10 and 30 samples and 2 and 8 steps."""
    updates = [
        make_update(0, 10, flat_model(2.0, 0.0), effective_steps=2.0),
        make_update(1, 30, flat_model(1.0, 5.0), effective_steps=8.0),
    ]
    result = FedNova().aggregate(
        make_server_round(), updates, make_server_state(flat_model(1.0, 1.0))
    )
    tau = 0.25 * 2 + 0.75 * 8
    per_step = [0.25 * (2 - 1) / 2 + 0.75 * (1 - 1) / 8, 0.25 * (0 - 1) / 2 + 0.75 * (5 - 1) / 8]
    expected = [1 + tau * per_step[0], 1 + tau * per_step[1]]
    assert result.models["model"].parameters.tolist() == pytest.approx(expected)
    shares = [0.25 / 2, 0.75 / 8]
    assert result.weights.tolist() == pytest.approx([s / sum(shares) for s in shares])


def test_fednova_with_equal_steps_equals_fedavg() -> None:
    updates = [
        make_update(n, 10 + n, flat_model(0.3 * n, -n), effective_steps=7.0) for n in range(4)
    ]
    known = make_server_round(), updates, make_server_state(flat_model(1.0, 1.0))
    nova, plain = (method.aggregate(*known) for method in (FedNova(), FedAvg()))
    torch.testing.assert_close(nova.weights, plain.weights)
    torch.testing.assert_close(nova.models["model"].parameters, plain.models["model"].parameters)


def test_fednova_does_not_favor_clients_with_many_steps() -> None:
    """Both clients have gradients of the same size; one takes ten times as many steps."""
    updates = [
        make_update(0, 10, flat_model(-1.0, 0.0), effective_steps=1.0),
        make_update(1, 10, flat_model(0.0, -10.0), effective_steps=10.0),
    ]
    result = FedNova().aggregate(
        make_server_round(), updates, make_server_state(flat_model(0.0, 0.0))
    )
    x, y = result.models["model"].parameters.tolist()
    assert x == pytest.approx(y)  # with FedAvg, x is a tenth of y


def test_effective_steps_are_the_norm_of_a() -> None:
    """||a||_1 of the paper for momentum rho: sum over k of (1 - rho^k) / (1 - rho)."""
    rho, steps = 0.9, 7
    expected = sum((1 - rho**k) / (1 - rho) for k in range(1, steps + 1))
    assert compute_effective_steps(SGD(momentum=rho), steps, 0.1) == pytest.approx(expected)
    assert compute_effective_steps(SGD(), steps, 0.1) == steps
    decay, lr = 0.2, 0.5  # as a proximal term: a = ((1 - lr decay)^(K-1), ..., 1)
    expected = sum((1 - lr * decay) ** k for k in range(steps))
    assert compute_effective_steps(SGD(weight_decay=decay), steps, lr) == pytest.approx(expected)


def test_clients_send_their_number_of_steps(tmp_path: Path) -> None:
    """Two epochs with batches of four; a last batch of one sample joins the batch before."""
    (result,) = run_rounds(FedNova(), tmp_path, small_settings(rounds=1, per_round=5))
    steps, samples = [2 * s for s in (2, 3, 3, 4, 4)], [9, 11, 13, 15, 17]
    shares = [n / s for n, s in zip(samples, steps, strict=True)]
    assert result.record.weights == pytest.approx([s / sum(shares) for s in shares])
    assert get_model(result).is_finite()


def test_scaffold_client_by_hand() -> None:
    x, y = torch.tensor([1.0, 1.0]), torch.tensor([0.4, 1.2])
    c, c_i = torch.tensor([0.5, -0.5]), {"control": torch.tensor([0.1, 0.2])}
    none = torch.zeros(1)
    penalty = compute_penalty(SCAFFOLD(), Step(none, none, none, y, x, {"control": c}, {}, c_i))
    assert penalty.item() == pytest.approx((0.5 - 0.1) * 0.4 + (-0.5 - 0.2) * 1.2)
    output = SCAFFOLD().finish(make_local_result(y, x, steps=3), Message({}, {"control": c}), c_i)
    after = [0.1 - 0.5 + (1 - 0.4) / (3 * 0.1), 0.2 + 0.5 + (1 - 1.2) / (3 * 0.1)]
    assert output.state["control"].tolist() == pytest.approx(after, abs=1e-6)
    change = [after[0] - 0.1, after[1] - 0.2]
    assert output.tensors["control_change"].tolist() == pytest.approx(change, abs=1e-6)


def test_scaffold_server_by_hand() -> None:
    updates = [
        make_update(n, samples, flat_model(w, 0.0), train_loss=0.0)
        for n, (samples, w) in enumerate([(10, 2.0), (30, 4.0)])
    ]
    for update, change in zip(updates, ([1.0, 0.0], [3.0, -2.0]), strict=True):
        update.message.tensors["control_change"] = torch.tensor(change)  # type: ignore[index]
    state = make_server_state(flat_model(1.0, 1.0), {"control": torch.tensor([0.5, 0.5])})
    result = SCAFFOLD().aggregate(make_server_round(num_clients=8), updates, state)
    assert result.models["model"].parameters.tolist() == [(2 + 4) / 2, 0]
    expected = [0.5 + 2 / 8 * (1 + 3) / 2, 0.5 + 2 / 8 * (0 - 2) / 2]
    assert result.tensors["control"].tolist() == pytest.approx(expected)


def run_plain_scaffold(rounds: int, lr: float) -> nn.Module:
    """Run SCAFFOLD with all clients as a plain loop over named parameters."""
    model, clients = small_model(), small_federation().clients
    names = [name for name, _ in model.named_parameters()]
    c = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    controls = [dict(c) for _ in clients]
    for number in range(1, rounds + 1):
        x = {name: p.detach().clone() for name, p in model.named_parameters()}
        trained: list[dict[str, Tensor]] = []
        changes: list[dict[str, Tensor]] = []
        for client, samples in enumerate(clients):
            model.load_state_dict(x)
            control, steps = controls[client], 0
            for batch in iter_plain_batches(samples, number, client):
                loss = F.cross_entropy(model(samples.inputs[batch]), samples.labels[batch])
                for name, p, g in list_gradients(loss, model):
                    p.sub_(lr * (g - control[name] + c[name]))
                steps += 1
            y = {name: p.detach().clone() for name, p in model.named_parameters()}
            after = {n: control[n] - c[n] + (x[n] - y[n]) / (steps * lr) for n in names}
            changes.append({n: after[n] - control[n] for n in names})
            trained.append(y)
            controls[client] = after
        model.load_state_dict({n: torch.stack([y[n] for y in trained]).mean(0) for n in names})
        c = {n: c[n] + torch.stack([change[n] for change in changes]).mean(0) for n in names}
    return model


def test_scaffold_matches_a_plain_loop(tmp_path: Path) -> None:
    check_matches_plain_loop(SCAFFOLD(), run_plain_scaffold(rounds=3, lr=0.1), tmp_path)
