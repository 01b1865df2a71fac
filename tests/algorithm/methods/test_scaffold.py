"""SCAFFOLD against arithmetic by hand, and a loop as one would write it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cadis.algorithm import LocalResult, ServerRound, ServerState, Step
from cadis.algorithm.methods import SCAFFOLD
from cadis.rng import generator_for
from cadis.types import Message
from support import (
    check_like_plain_loop,
    flat_model,
    gradients_of,
    plain_batches,
    small_federation,
    small_model,
    update_of,
)


def test_scaffold_by_hand() -> None:
    x, y = torch.tensor([1.0, 1.0]), torch.tensor([0.4, 1.2])
    c, c_i = torch.tensor([0.5, -0.5]), {"control": torch.tensor([0.1, 0.2])}
    none = torch.zeros(1)
    step = Step(none, none, none, y, x, {"control": c}, {}, c_i)
    penalty = SCAFFOLD().penalty(step)
    assert penalty is not None
    assert penalty.item() == pytest.approx((0.5 - 0.1) * 0.4 + (-0.5 - 0.2) * 1.2)
    training = LocalResult(
        flat_model(0.4, 1.2), y, x, steps=3, lr=0.1, loss=0.0, effective_steps=3.0
    )
    finished = SCAFFOLD().finish(training, Message({}, {"control": c}), c_i)
    after = [0.1 - 0.5 + (1 - 0.4) / (3 * 0.1), 0.2 + 0.5 + (1 - 1.2) / (3 * 0.1)]
    assert finished.state["control"].tolist() == pytest.approx(after, abs=1e-6)
    change = [after[0] - 0.1, after[1] - 0.2]
    assert finished.tensors["control_change"].tolist() == pytest.approx(change, abs=1e-6)


def test_scaffolds_server_by_hand() -> None:
    updates = [
        update_of(n, examples, flat_model(w, 0.0), train_loss=0.0)
        for n, (examples, w) in enumerate([(10, 2.0), (30, 4.0)])
    ]
    for update, change in zip(updates, ([1.0, 0.0], [3.0, -2.0]), strict=True):
        update.message.tensors["control_change"] = torch.tensor(change)  # type: ignore[index]
    state = ServerState({"model": flat_model(1.0, 1.0)}, {"control": torch.tensor([0.5, 0.5])})
    result = SCAFFOLD().aggregate(ServerRound(1, (), 8, generator_for(0)), updates, state)
    assert result.models["model"].parameters.tolist() == [(2 + 4) / 2, 0]
    expected = [0.5 + 2 / 8 * (1 + 3) / 2, 0.5 + 2 / 8 * (0 - 2) / 2]
    assert result.memory["control"].tolist() == pytest.approx(expected)


def plain_scaffold(rounds: int, lr: float) -> nn.Module:
    """Everybody takes part; parameters by name, and the corrected step written out."""
    model, clients = small_model(), small_federation().clients
    names = [name for name, _ in model.named_parameters()]
    c = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    controls = [dict(c) for _ in clients]
    for number in range(1, rounds + 1):
        x = {name: p.detach().clone() for name, p in model.named_parameters()}
        trained: list[dict[str, Tensor]] = []
        changes: list[dict[str, Tensor]] = []
        for client, own in enumerate(clients):
            model.load_state_dict(x)
            control, steps = controls[client], 0
            for batch in plain_batches(own, number, client):
                loss = F.cross_entropy(model(own.inputs[batch]), own.labels[batch])
                for name, p, g in gradients_of(loss, model):
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


def test_scaffold_is_what_a_plain_loop_does(tmp_path: Path) -> None:
    check_like_plain_loop(SCAFFOLD(), plain_scaffold(rounds=3, lr=0.1), tmp_path)
