"""The examples of methods, against arithmetic by hand and loops as one would write them."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import cadis
import fedadam_on_cadis
import private_cadis
from cadis.algorithm import Algorithm
from cadis.core import Message, ModelState, generator_for
from cadis.engine import Engine, Federation
from cadis.methods import CADIS, FedAvg, ServerRound, ServerState, Step, Training
from cadis.models import FlatModel
from cadis.runs import RunFolder
from cadis.samplers import SampledRound, SamplerRound
from cadis.server_optimizers import Adam
from cadis.training import batch_sizes
from cadis.transforms import Clip
from fedcm import FedCM
from fesem import FeSEM
from ifca import IFCA
from round_robin import RoundRobin
from scaffold import Scaffold
from support import (
    blobs,
    model_after,
    models_after,
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
    assert len(files) == 7
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


def planted() -> Federation:
    """Four clients have the classes 0 and 1; two, who share a model with nobody, have 2 and 3."""
    owned = [[0, 1], [2, 3], [0, 1], [0, 1], [2, 3], [0, 1]]
    clients = [blobs(24, labels, seed=n) for n, labels in enumerate(owned)]
    return Federation(clients, blobs(20, [0, 1, 2, 3], seed=99))


def test_ifca_finds_the_clusters(tmp_path: Path) -> None:
    settings = small_settings(rounds=8, per_round=4)
    for workers in (1, 2):
        engine = Engine(
            small_model(), planted(), Algorithm(IFCA(num_models=2)), settings, tmp_path / "a"
        )
        results = list(engine.rounds(engine.start))
        state = results[-1].state.server
        used = [IFCA().model_of(client, state) for client in range(6)]
        assert used[0] == used[2] == used[3] == used[5] != used[1] == used[4], workers


def test_several_models_in_the_record(tmp_path: Path) -> None:
    engine = Engine(
        small_model(), planted(), Algorithm(IFCA()), small_settings(6, per_round=4), tmp_path
    )
    (*_, last) = engine.rounds(engine.start)
    record, models = last.record, last.state.server.models
    assert [model.name for model in record.models] == ["model-0", "model-1"]
    assert sum(model.clients for model in record.models) == 6
    tested = []
    for told in record.models:
        flat = FlatModel(small_model())
        flat.load(models[told.name])
        flat.module.eval()
        test = planted().test
        right = (flat.module(test.inputs).argmax(dim=1) == test.labels).double().mean()
        assert told.accuracy == pytest.approx(float(right))
        tested.append(float(right) * told.clients)
    assert record.accuracy == pytest.approx(sum(tested) / 6)
    assert len(record.client_models) == len(record.participants)
    assert record.client_accuracy is not None
    assert len(record.client_accuracy) == 6


def test_several_models_are_kept_and_gone_on_with(tmp_path: Path) -> None:
    federation = planted()

    def run(rounds: int, out: str, resume: bool = False) -> cadis.RunResult:
        return cadis.run(
            small_model(),
            federation.clients,
            federation.test,
            rounds=rounds,
            method=IFCA(num_models=12),
            per_round=4,
            lr=0.1,
            out=tmp_path / out,
            resume=resume,
        )

    whole = run(5, "whole")
    run(2, "part")
    resumed = run(5, "part", resume=True)
    assert list(whole.models) == list(resumed.models) == [f"model-{n}" for n in range(12)]
    for name, model in whole.models.items():
        tensors = resumed.models[name].state_dict()
        assert all(same(tensors[key], tensor) for key, tensor in model.state_dict().items())
    for name in ("model.safetensors", "best.safetensors"):
        stored = (tmp_path / "whole" / name).read_bytes()
        assert stored == (tmp_path / "part" / name).read_bytes()
        assert b"model-1/7.weight" in stored
    told = [
        [
            {k: v for k, v in record.to_json().items() if k not in ("seconds", "client_accuracy")}
            for record in run.history
        ]
        for run in (whole, resumed)
    ]
    assert told[0] == told[1]
    assert len(RunFolder(tmp_path / "part").read_history()) == 5


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


def test_fedcm_by_hand() -> None:
    alpha, x, y = 0.25, torch.tensor([1.0, 1.0]), torch.tensor([0.4, 1.2])
    direction = {"direction": torch.tensor([0.5, -2.0])}
    none = torch.zeros(1)
    penalty = FedCM(alpha).penalty(Step(none, none, none, y, x, direction, {}, {}))
    assert penalty is not None
    assert penalty.item() == pytest.approx((1 - 0.25) / 0.25 * (0.5 * 0.4 - 2.0 * 1.2))
    training = Training(model_of(0.4, 1.2), y, x, steps=3, lr=0.1, loss=0.0, effective_steps=3.0)
    finished = FedCM(alpha).finish(training, Message({}, direction), {})
    assert finished.scalars["path"] == pytest.approx(3 * 0.1 / 0.25)


def test_fedcms_server_by_hand() -> None:
    updates = [
        update_of(0, 10, model_of(2.0, 0.0), path=2.0),
        update_of(1, 30, model_of(4.0, -1.0), path=4.0),
    ]
    state = ServerState({"model": model_of(1.0, 1.0)}, {"direction": torch.tensor([9.0, 9.0])})
    result = FedCM().aggregate(ServerRound(1, (), 8, generator_for(0)), updates, state)
    assert result.models["model"].parameters.tolist() == [(2 + 4) / 2, (0 - 1) / 2]
    first, second = ((1 - 2) / 2 + (1 - 4) / 4) / 2, ((1 - 0) / 2 + (1 + 1) / 4) / 2
    assert result.memory["direction"].tolist() == pytest.approx([first, second])
    assert FedCM().broadcast(ServerRound(2, (), 8, generator_for(0)), state, 0).tensors.keys() == {
        "direction"
    }


def plain_fedcm(rounds: int, eta: float, alpha: float) -> nn.Module:
    """Everybody takes part; the paper's step and direction written out, with parameters by name."""
    model, clients = small_model(), small_federation().clients
    names = [name for name, _ in model.named_parameters()]
    direction = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for number in range(1, rounds + 1):
        x = {name: p.detach().clone() for name, p in model.named_parameters()}
        trained: list[dict[str, Tensor]] = []
        moved: list[dict[str, Tensor]] = []
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
                            p.sub_(eta * (alpha * g + (1 - alpha) * direction[name]))
                    steps += 1
            y = {name: p.detach().clone() for name, p in model.named_parameters()}
            moved.append({n: (x[n] - y[n]) / (steps * eta) for n in names})
            trained.append(y)
        model.load_state_dict({n: torch.stack([y[n] for y in trained]).mean(0) for n in names})
        direction = {n: torch.stack([each[n] for each in moved]).mean(0) for n in names}
    return model


@pytest.mark.parametrize("alpha", [0.4, 1.0])
def test_fedcm_is_what_a_plain_loop_does(tmp_path: Path, alpha: float) -> None:
    """The learning rate of ``small_settings``, 0.1, is alpha times that of the paper."""
    settings = small_settings(rounds=3, per_round=5)
    found = FlatModel(small_model())
    found.load(model_after(run_rounds(FedCM(alpha), tmp_path, settings)[-1]))
    expected = plain_fedcm(rounds=3, eta=0.1 / alpha, alpha=alpha)
    for mine, theirs in zip(found.module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_fesems_server_by_hand() -> None:
    """In the first round those farthest apart are told from each other; then the nearest counts."""
    method, start = FeSEM(num_models=2), model_of(0.0, 0.0)
    in_round = ServerRound(1, (), 8, generator_for(0))
    places = {5: (10, 1.0, 0.0), 6: (30, 9.0, 0.0), 7: (30, 5.0, 0.0), 8: (30, 3.0, 0.0)}
    updates = [update_of(c, n, model_of(*w)) for c, (n, *w) in places.items()]
    first = method.aggregate(in_round, updates, method.init(start, generator_for(0)))
    models = {name: model.parameters.tolist() for name, model in first.models.items()}
    near = [(10 * 1 + 30 * 5 + 30 * 3) / 70, 0.0]  # 5 is as far from 1 as from 9: the first counts
    assert models == {"model-0": pytest.approx(near), "model-1": [9.0, 0.0]}
    assert first.report["clusters"].tolist() == [0, 1, 0, 0]
    state = ServerState(first.models, first.memory)
    assert [method.model_of(client, state) for client in (5, 6, 7, 99)] == [
        "model-0",
        "model-1",
        "model-0",
        "model-0",
    ]
    newcomer = method.broadcast(in_round, state, 99).model.parameters.tolist()
    assert newcomer == pytest.approx([(near[0] + 9) / 2, 0.0])
    assert method.broadcast(in_round, state, 6).model.parameters.tolist() == [9.0, 0.0]
    second = method.aggregate(in_round, [update_of(7, 30, model_of(8.0, 0.0))], state)
    assert list(second.models) == ["model-1"]
    moved = ServerState({**state.models, **second.models}, second.memory)
    assert method.model_of(7, moved) == "model-1"
    assert method.model_of(8, moved) == "model-0"


@pytest.mark.parametrize("workers", [1, 2])
def test_fesem_finds_the_clusters(tmp_path: Path, workers: int) -> None:
    settings = small_settings(rounds=8, per_round=4, workers=workers)
    engine = Engine(small_model(), planted(), Algorithm(FeSEM()), settings, tmp_path)
    (*_, last) = engine.rounds(engine.start)
    used = [FeSEM().model_of(client, last.state.server) for client in range(6)]
    assert used[0] == used[2] == used[3] == used[5] != used[1] == used[4]


def test_one_model_of_fesem_is_plain_averaging(tmp_path: Path) -> None:
    found = run_rounds(FeSEM(num_models=1), tmp_path)[-1].state.server.models["model-0"]
    assert same(found.parameters, model_after(run_rounds(FedAvg(), tmp_path)[-1]).parameters)


def test_everybody_takes_part_in_turn(tmp_path: Path) -> None:
    algorithm = Algorithm(FedAvg(), sampler=RoundRobin())
    results = run_rounds(algorithm, tmp_path, small_settings(rounds=10, per_round=3))
    told = [result.record.participants for result in results]
    assert told[:3] == [[0, 1, 2], [3, 4, 0], [1, 2, 3]]
    for start in (0, 5):  # five rounds of three seats, of five clients: everybody three times
        seats = Counter(client for chosen in told[start : start + 5] for client in chosen)
        assert set(seats.values()) == {3}


def test_whoever_did_not_answer_is_still_first() -> None:
    sampler = RoundRobin()
    memory = sampler.learn(SampledRound(1, [update_of("b", 9, model_of(1.0))]), {})
    among = SamplerRound(2, ["b", "a", "new"], 2, generator_for(0), {})
    assert sampler.choose(among, memory) == ["a", "new"]


@pytest.mark.parametrize(
    "algorithm",
    [Algorithm(FedCM(0.5)), Algorithm(FeSEM()), Algorithm(FedAvg(), sampler=RoundRobin())],
    ids=["fedcm", "fesem", "round-robin"],
)
def test_what_parts_know_is_gone_on_with(tmp_path: Path, algorithm: Algorithm) -> None:
    whole = run_rounds(algorithm, tmp_path, small_settings(rounds=6, per_round=2))
    first = run_rounds(algorithm, tmp_path, small_settings(3, workers=2, per_round=2))
    rest = run_rounds(
        algorithm, tmp_path, small_settings(rounds=6, per_round=2), start=first[-1].state
    )
    for one, other in zip(models_after(whole[-1]), models_after(rest[-1]), strict=True):
        assert same(one.parameters, other.parameters)
    told = [result.record.participants for result in first + rest]
    assert told == [result.record.participants for result in whole]
