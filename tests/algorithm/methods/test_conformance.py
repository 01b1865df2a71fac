"""One table over all methods: what every method must do."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import cadis
from cadis.algorithm import BaseMethod, LocalResult, ServerRound, ServerState, Step
from cadis.rng import generator_for
from cadis.types import ClientUpdate, Message, ModelState, TensorState
from fesem import FeSEM
from method_support import server_round as support_round
from method_support import state_after
from support import (
    ALL_METHODS,
    models_after,
    run_rounds,
    run_small,
    same,
    small_model,
    small_settings,
    view,
)

each_method = pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.name)

HEAD = (slice(4, 10), slice(10, 12))


def server_round(number: int = 1) -> ServerRound:
    return support_round(number, HEAD, num_clients=6, generator=generator_for(0, number))


def random_model(seed: int, counter: int) -> ModelState:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(12, generator=generator)
    return ModelState(numbers, torch.rand(2, generator=generator), torch.tensor([counter]))


def started(method: BaseMethod) -> ServerState:
    """What a server begins with."""
    return method.init(random_model(1, 3), generator_for(0, "init"))


def updates(
    method: BaseMethod, state: ServerState, clients: list[int], number: int = 1
) -> list[ClientUpdate]:
    """What clients might send back, with all that the method asks for."""
    found = []
    for client in clients:
        received = method.broadcast(server_round(number), state, client)
        names = list(received.models)
        trained = {names[client % len(names)]: random_model(100 * number + client, client)}
        chance = torch.Generator().manual_seed(client)
        tensors = {n: torch.randn(12, generator=chance) for n in method.needs_tensors}
        scalars = dict.fromkeys(method.needs_scalars, 0.1 * client)
        scalars["train_loss"] = 1.0 + client
        found.append(ClientUpdate(client, 10 + client, Message(trained, tensors, scalars)))
    return found


def tensors_in(things: object) -> list[Tensor]:
    """All tensors in nested dataclasses, mappings and lists."""
    if isinstance(things, Tensor):
        return [things]
    if isinstance(things, Mapping):
        return [tensor for value in things.values() for tensor in tensors_in(value)]
    if isinstance(things, list | tuple):
        return [tensor for value in things for tensor in tensors_in(value)]
    return tensors_in(vars(things)) if hasattr(things, "__dict__") else []


@each_method
def test_aggregation_is_deterministic_and_changes_no_input(method: BaseMethod) -> None:
    state = started(method)
    made = method.aggregate(server_round(1), updates(method, state, [0, 1, 2, 3]), state)
    state = state_after(state, made)
    inputs = server_round(2), updates(method, state, [1, 2, 4], 2), state
    before = [tensor.clone() for tensor in tensors_in(list(inputs))]
    first = method.aggregate(*inputs)
    again = method.aggregate(server_round(2), updates(method, state, [1, 2, 4], 2), state)
    assert all(map(same, tensors_in(list(inputs)), before))
    assert all(map(torch.equal, tensors_in(first.models), tensors_in(again.models)))
    assert all(map(same, tensors_in(first.memory), tensors_in(again.memory)))


@each_method
def test_weights_are_shares_and_everything_is_finite(method: BaseMethod) -> None:
    state = started(method)
    sent = updates(method, state, [0, 1, 2, 3])
    result = method.aggregate(server_round(), sent, state)
    assert result.weights.shape == (4,)
    assert (result.weights >= 0).all()
    for name, model in result.models.items():
        own = [place for place, u in enumerate(sent) if u.message.model_name == name]
        assert result.weights[own].sum().item() == pytest.approx(1)
        assert model.is_finite()
        assert model.counters.tolist() == [max(sent[n].model.counters.item() for n in own)]
        assert model.counters.dtype == torch.int64


@each_method
def test_one_participant(method: BaseMethod) -> None:
    state = started(method)
    (update,) = updates(method, state, [2])
    result = method.aggregate(server_round(), [update], state)
    assert result.weights.tolist() == [1]
    (model,) = result.models.values()
    assert model.is_finite()
    if method.name != "feddyn":  # whose server adds its correction
        assert torch.equal(model.parameters, update.model.parameters)


@each_method
def test_server_state_survives_saving_and_loading(method: BaseMethod, tmp_path: Path) -> None:
    state = started(method)
    for number, clients in enumerate(([0, 1, 2], [1, 3, 4], [2, 4, 5]), start=1):
        sent = updates(method, state, clients, number)
        kept = method.aggregate(server_round(number), sent, state)
        if state.memory:
            save_file(dict(state.memory), tmp_path / "state")
            loaded = ServerState(state.models, load_file(tmp_path / "state"))
            again = method.aggregate(server_round(number), sent, loaded)
            assert all(map(torch.equal, tensors_in(kept.models), tensors_in(again.models)))
        state = state_after(state, kept)


@each_method
def test_client_half_is_pure_and_can_be_stacked(method: BaseMethod) -> None:
    """Several clients at once under vmap give what each gives alone, with what they remember."""
    assert isinstance(method, BaseMethod)
    generator = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> Tensor:
        return torch.rand(3, *shape, generator=generator)

    sent = method.broadcast(server_round(), started(method), 0).tensors
    names = list(sent)
    inputs = (
        rand(5, 4),
        rand(5, 6),
        rand(5, 6),
        rand(12),
        rand(12),
        torch.randint(0, 4, (3, 5), generator=generator),
        torch.randint(0, 9, (3, 4), generator=generator),
        *(rand(*sent[name].shape) for name in names),
    )

    def client(parts: Sequence[Tensor], memory: TensorState) -> tuple[Tensor, Tensor, TensorState]:
        y, r, t, w, w_t, label, counts, *rest = parts
        tensors = dict(zip(names, rest, strict=True))
        prepared = method.prepare(view(y, t, label))
        step = Step(y, r, label, w, w_t, tensors, prepared.per_example, memory, class_counts=counts)
        penalty = method.penalty(step)
        model = ModelState(w, torch.zeros(0), torch.zeros(0).long())
        training = LocalResult(model, w, w_t, steps=3, lr=0.1, loss=0.5, effective_steps=3.0)
        finished = method.finish(training, Message({}, tensors), memory)
        scalars = sum(prepared.scalars.values(), torch.zeros(()))
        total = (torch.zeros(()) if penalty is None else penalty) + scalars
        return total, method.calibrate(step), finished.state

    copies = [tensor.clone() for tensor in inputs]
    memory: TensorState = {}
    for _ in range(2):
        stacked = torch.func.vmap(client)(inputs, memory)
        rows = range(3)
        memories = [{name: tensor[n] for name, tensor in memory.items()} for n in rows]
        alone = [client([part[n] for part in inputs], memories[n]) for n in rows]
        for part in range(2):
            expected = torch.stack([result[part] for result in alone])  # type: ignore[misc]
            torch.testing.assert_close(stacked[part], expected, check_dtype=False)
        for name, tensor in stacked[2].items():
            torch.testing.assert_close(tensor, torch.stack([each[2][name] for each in alone]))
        memory = stacked[2]
    assert all(map(torch.equal, inputs, copies))


LIKE_FEDAVG = [
    cadis.FedProx(mu=0),
    cadis.FedLC(tau=0.0),
    cadis.FedRS(alpha=1.0),
    cadis.FedNTD(beta=0.0),
    cadis.BalanceFL(0.0, balanced=False),
    cadis.MOON(mu=0.0),
    cadis.IFCA(num_models=1),
    FeSEM(num_models=1),
    cadis.CFL(eps1=1e-6),
    cadis.FLHC(warmup=2, distance=2.0),
    cadis.CADISPaper(threshold=1.0, threshold_max=1.0, distillation=0),
]


@pytest.mark.parametrize("method", LIKE_FEDAVG, ids=lambda method: method.name)
def test_without_what_makes_it_another_it_is_fedavg(method: BaseMethod, tmp_path: Path) -> None:
    """MOON's and IFCA's clients are never stacked, so that FedAvg's must not be either."""
    settings = replace(small_settings(4), stack=method.name not in ("moon", "ifca"))
    results, plain = (run_rounds(m, tmp_path, settings) for m in (method, cadis.FedAvg()))
    (mine,), (theirs,) = models_after(results[-1]), models_after(plain[-1])
    assert same(mine.parameters, theirs.parameters)
    assert results[-1].record.weights == plain[-1].record.weights
    if method.name == "cadis-paper":
        assert all(result.record.report["clusters"] == [0, 1, 2] for result in results)


@each_method
def test_runs_with_batch_norm(method: BaseMethod, tmp_path: Path) -> None:
    model = small_model(batch_norm=True)
    (*_, last) = run_rounds(method, tmp_path, model=model)
    models = models_after(last)
    assert all(model.is_finite() for model in models)
    assert all(model.counters.dtype == torch.int64 for model in models)
    trained = [model for model in models if model.counters.item() > 0]
    assert trained
    assert not torch.equal(trained[0].buffers, torch.tensor([0.0] * 3 + [1.0] * 3))


@each_method
def test_the_same_seed_gives_the_same_run(method: BaseMethod, tmp_path: Path) -> None:
    model = small_model(dropout=0.3)
    first = run_rounds(method, tmp_path, model=model)[-1]
    torch.manual_seed(1234)  # global randomness must not matter
    again = run_rounds(method, tmp_path, model=model)[-1]
    for one, other in zip(models_after(first), models_after(again), strict=True):
        assert same(one.parameters, other.parameters)
    assert first.record.loss == again.record.loss


@each_method
def test_one_client_a_round(method: BaseMethod, tmp_path: Path) -> None:
    (*_, last) = run_rounds(method, tmp_path, small_settings(per_round=1))
    assert all(model.is_finite() for model in models_after(last))


@each_method
def test_any_number_of_workers_gives_the_same_bits(method: BaseMethod, tmp_path: Path) -> None:
    """With partial participation; some model moves, and all stay finite."""
    results, others = (run_rounds(method, tmp_path, small_settings(workers=n)) for n in (1, 2))
    assert [result.record.round for result in results] == [1, 2, 3]
    first, last = (models_after(results[place]) for place in (0, -1))
    assert all(model.is_finite() for model in last)
    assert any(
        not torch.equal(a.parameters, b.parameters) for a, b in zip(first, last, strict=False)
    )
    one, two = results[-1].state.server, others[-1].state.server
    assert one.models.keys() == two.models.keys()
    assert all(map(same, tensors_in(one), tensors_in(two)))


@each_method
def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(method: BaseMethod, tmp_path: Path) -> None:
    """From the files alone, as after a crash: models, memories of the server and of clients."""
    given = {"per_round": 3, "epochs": 1, "batch_size": 4, "lr": 0.1, "seed": 7, "workers": 1}
    whole = run_small(method=method, **given, rounds=4, out=tmp_path / "whole")
    run_small(method=method, **given, rounds=2, out=tmp_path / "part")
    again = run_small(method=method, **given, rounds=4, out=tmp_path / "part", resume=True)
    found, expected = (
        load_file(tmp_path / name / "model.safetensors") for name in ("part", "whole")
    )
    assert all(same(found[name], tensor) for name, tensor in expected.items())
    for one, other in zip(whole.history, again.history, strict=True):
        assert (one.accuracy, one.participants) == (other.accuracy, other.participants)
        assert one.weights == other.weights
