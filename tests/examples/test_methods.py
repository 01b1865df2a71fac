"""The examples of methods, against arithmetic by hand and loops as one would write them."""

from itertools import pairwise
from math import inf
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fedadam_on_cadis
import private_cadis
from cadis.algorithm import Algorithm
from cadis.core import Message, ModelState, generator_for
from cadis.methods import CADIS, FedAvg, ServerRound, ServerState, Step, Training
from cadis.models import FlatModel
from cadis.server_optimizers import Adam
from cadis.training import batch_sizes
from cadis.transforms import Clip
from power_of_choice import PowerOfChoice
from scaffold import Scaffold
from support import (
    model_after,
    run_rounds,
    same,
    small_federation,
    small_model,
    small_settings,
    update_of,
)

EXAMPLES = Path(__file__).parents[2] / "examples" / "methods"


def test_each_is_short() -> None:
    files = sorted(EXAMPLES.glob("*.py"))
    assert len(files) == 4
    assert all(len(file.read_text().splitlines()) <= 80 for file in files)


def model_of(*parameters: float) -> ModelState:
    return ModelState(torch.tensor(parameters), torch.zeros(0), torch.zeros(0).long())


def test_scaffold_by_hand() -> None:
    x, y = torch.tensor([1.0, 1.0]), torch.tensor([0.4, 1.2])
    c, c_i = torch.tensor([0.5, -0.5]), {"control": torch.tensor([0.1, 0.2])}
    none = torch.zeros(1)
    step = Step(none, none, none, y, x, {"control": c}, {}, c_i)
    penalty = Scaffold().penalty(step)
    assert penalty is not None
    assert penalty.item() == pytest.approx((0.5 - 0.1) * 0.4 + (-0.5 - 0.2) * 1.2)
    training = Training(model_of(0.4, 1.2), y, x, steps=3, lr=0.1, loss=0.0, effective_steps=3.0)
    finished = Scaffold().finish(training, Message({}, {"control": c}), c_i)
    after = [0.1 - 0.5 + (1 - 0.4) / (3 * 0.1), 0.2 + 0.5 + (1 - 1.2) / (3 * 0.1)]
    assert finished.memory["control"].tolist() == pytest.approx(after, abs=1e-6)
    change = [after[0] - 0.1, after[1] - 0.2]
    assert finished.tensors["control_change"].tolist() == pytest.approx(change, abs=1e-6)


def test_scaffolds_server_by_hand() -> None:
    updates = [
        update_of(n, examples, model_of(w, 0.0), train_loss=0.0)
        for n, (examples, w) in enumerate([(10, 2.0), (30, 4.0)])
    ]
    for update, change in zip(updates, ([1.0, 0.0], [3.0, -2.0]), strict=True):
        update.message.tensors["control_change"] = torch.tensor(change)  # type: ignore[index]
    state = ServerState({"model": model_of(1.0, 1.0)}, {"control": torch.tensor([0.5, 0.5])})
    result = Scaffold().aggregate(ServerRound(1, (), 8, generator_for(0)), updates, state)
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
            generator, steps = generator_for(7, "train", number, client), 0
            torch.randint(2**62, (), generator=generator)
            for _ in range(2):
                order = torch.randperm(len(own), generator=generator)
                for batch in order.split(batch_sizes(len(own), 4)):
                    loss = F.cross_entropy(model(own.inputs[batch]), own.labels[batch])
                    gradients = torch.autograd.grad(loss, list(model.parameters()))
                    with torch.no_grad():
                        for name, p, g in zip(names, model.parameters(), gradients, strict=True):
                            p.sub_(lr * (g - controls[client][name] + c[name]))
                    steps += 1
            y = {name: p.detach().clone() for name, p in model.named_parameters()}
            after = {n: controls[client][n] - c[n] + (x[n] - y[n]) / (steps * lr) for n in names}
            changes.append({n: after[n] - controls[client][n] for n in names})
            trained.append(y)
            controls[client] = after
        model.load_state_dict({n: torch.stack([y[n] for y in trained]).mean(0) for n in names})
        c = {n: c[n] + torch.stack([change[n] for change in changes]).mean(0) for n in names}
    return model


def test_scaffold_is_what_a_plain_loop_does(tmp_path: Path) -> None:
    settings = small_settings(rounds=3, per_round=5)
    found = FlatModel(small_model())
    found.load(model_after(run_rounds(Scaffold(), tmp_path, settings)[-1]))
    expected = plain_scaffold(rounds=3, lr=0.1)
    for mine, theirs in zip(found.module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_adam_on_the_weights_of_cadis(tmp_path: Path) -> None:
    """The first step, from what CADIS alone would have made of the round."""
    adam = Adam(server_lr=0.05)
    settings = small_settings(rounds=1)
    before = FlatModel(small_model()).state().parameters.double()
    plain = model_after(run_rounds(CADIS(), tmp_path, settings)[-1]).parameters.double()
    found = run_rounds(Algorithm(CADIS(), server_optimizer=adam), tmp_path, settings)[-1]
    change = plain - before
    m = (1 - adam.beta1) * change
    v = adam.beta2 * adam.tau**2 + (1 - adam.beta2) * change**2
    expected = before + adam.server_lr * m / (v.sqrt() + adam.tau)
    torch.testing.assert_close(model_after(found).parameters, expected.float())
    assert found.record.report["clusters"] is not None


def test_clipped_updates_move_the_model_by_no_more(tmp_path: Path) -> None:
    before = FlatModel(small_model()).state().parameters
    clipped = Algorithm(CADIS(), transforms=(Clip(clip=0.1),))
    for method, longer in ((clipped, False), (CADIS(), True)):
        result = run_rounds(method, tmp_path, small_settings(rounds=1))[-1]
        moved = float((model_after(result).parameters - before).norm())
        assert (moved > 0.1 + 1e-6) is longer


def test_the_compositions_run() -> None:
    for example in (fedadam_on_cadis, private_cadis):
        result = example.main(rounds=1)
        assert len(result.history) == 1
        assert result.history[0].report["clusters"]


def test_those_with_the_highest_last_loss_take_part(tmp_path: Path) -> None:
    algorithm = Algorithm(FedAvg(), sampler=PowerOfChoice(candidates=5))
    results = run_rounds(algorithm, tmp_path, small_settings(rounds=8, per_round=2))
    records, losses = [result.record for result in results], dict[int, float]()
    for before, after in pairwise(records):
        for client, loss in zip(before.participants, before.client_loss, strict=True):
            assert loss is not None
            losses[int(client)] = loss
        known = {client: losses.get(client, inf) for client in range(5)}
        lowest_chosen = min(known[int(client)] for client in after.participants)
        others = [known[client] for client in range(5) if client not in after.participants]
        assert lowest_chosen >= max(others)


def test_what_the_sampler_knows_is_gone_on_with(tmp_path: Path) -> None:
    algorithm = Algorithm(FedAvg(), sampler=PowerOfChoice(candidates=4))
    whole = run_rounds(algorithm, tmp_path, small_settings(rounds=6, per_round=2))
    first = run_rounds(algorithm, tmp_path, small_settings(rounds=3, per_round=2))
    rest = run_rounds(
        algorithm, tmp_path, small_settings(rounds=6, per_round=2), start=first[-1].state
    )
    assert same(model_after(whole[-1]).parameters, model_after(rest[-1]).parameters)
    told = [result.record.participants for result in first + rest]
    assert told == [result.record.participants for result in whole]
