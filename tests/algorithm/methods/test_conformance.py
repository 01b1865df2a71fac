"""Conformance: properties that every method must have."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import cadis
from cadis.algorithm import BaseMethod, LocalResult, ServerRound, ServerState, Step
from cadis.rng import derive_generator
from cadis.types import ClientUpdate, Message, ModelState, TensorState
from fesem import FeSEM
from method_support import get_next_state
from method_support import make_server_round as support_round
from support import (
    ALL_METHODS,
    get_models,
    is_identical,
    make_model_outputs,
    run_rounds,
    run_small,
    small_model,
    small_settings,
)

each_method = pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.name)

HEAD = (slice(4, 10), slice(10, 12))


def make_server_round(number: int = 1) -> ServerRound:
    return support_round(number, HEAD, num_clients=6, generator=derive_generator(0, number))


def random_model(seed: int, counter: int) -> ModelState:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(12, generator=generator)
    return ModelState(numbers, torch.rand(2, generator=generator), torch.tensor([counter]))


def initialize(method: BaseMethod) -> ServerState:
    """Return the initial state of the server."""
    return method.init(random_model(1, 3), derive_generator(0, "init"))


def make_updates(
    method: BaseMethod, state: ServerState, clients: list[int], number: int = 1
) -> list[ClientUpdate]:
    """Return random updates with all scalars and tensors that the method needs."""
    updates = []
    for client in clients:
        received = method.broadcast(make_server_round(number), state, client)
        names = list(received.models)
        trained = {names[client % len(names)]: random_model(100 * number + client, client)}
        generator = torch.Generator().manual_seed(client)
        tensors = {n: torch.randn(12, generator=generator) for n in method.needs_tensors}
        scalars = dict.fromkeys(method.needs_scalars, 0.1 * client)
        scalars["train_loss"] = 1.0 + client
        updates.append(ClientUpdate(client, 10 + client, Message(trained, tensors, scalars)))
    return updates


def collect_tensors(value: object) -> list[Tensor]:
    """Return all tensors in nested dataclasses, mappings and lists."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [tensor for item in value.values() for tensor in collect_tensors(item)]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in collect_tensors(item)]
    return collect_tensors(vars(value)) if hasattr(value, "__dict__") else []


@each_method
def test_aggregation_is_deterministic_and_changes_no_input(method: BaseMethod) -> None:
    state = initialize(method)
    result = method.aggregate(
        make_server_round(1), make_updates(method, state, [0, 1, 2, 3]), state
    )
    state = get_next_state(state, result)
    inputs = make_server_round(2), make_updates(method, state, [1, 2, 4], 2), state
    before = [tensor.clone() for tensor in collect_tensors(list(inputs))]
    first = method.aggregate(*inputs)
    again = method.aggregate(make_server_round(2), make_updates(method, state, [1, 2, 4], 2), state)
    assert all(map(is_identical, collect_tensors(list(inputs)), before))
    assert all(map(torch.equal, collect_tensors(first.models), collect_tensors(again.models)))
    assert all(map(is_identical, collect_tensors(first.tensors), collect_tensors(again.tensors)))


@each_method
def test_weights_sum_to_one_and_models_are_finite(method: BaseMethod) -> None:
    state = initialize(method)
    sent = make_updates(method, state, [0, 1, 2, 3])
    result = method.aggregate(make_server_round(), sent, state)
    assert result.weights.shape == (4,)
    assert (result.weights >= 0).all()
    for name, model in result.models.items():
        indices = [n for n, update in enumerate(sent) if update.message.model_name == name]
        assert result.weights[indices].sum().item() == pytest.approx(1)
        assert model.is_finite()
        assert model.counters.tolist() == [max(sent[n].model.counters.item() for n in indices)]
        assert model.counters.dtype == torch.int64


@each_method
def test_one_participant_determines_the_model(method: BaseMethod) -> None:
    state = initialize(method)
    (update,) = make_updates(method, state, [2])
    result = method.aggregate(make_server_round(), [update], state)
    assert result.weights.tolist() == [1]
    (model,) = result.models.values()
    assert model.is_finite()
    if method.name != "feddyn":  # its server adds a correction
        assert torch.equal(model.parameters, update.model.parameters)


@each_method
def test_server_state_survives_saving_and_loading(method: BaseMethod, tmp_path: Path) -> None:
    state = initialize(method)
    for number, clients in enumerate(([0, 1, 2], [1, 3, 4], [2, 4, 5]), start=1):
        sent = make_updates(method, state, clients, number)
        result = method.aggregate(make_server_round(number), sent, state)
        if state.tensors:
            save_file(dict(state.tensors), tmp_path / "state")
            loaded = ServerState(state.models, load_file(tmp_path / "state"))
            again = method.aggregate(make_server_round(number), sent, loaded)
            assert all(
                map(torch.equal, collect_tensors(result.models), collect_tensors(again.models))
            )
        state = get_next_state(state, result)


@each_method
def test_client_functions_work_under_vmap(method: BaseMethod) -> None:
    """Several clients at once give the same results as single clients, with state."""
    assert isinstance(method, BaseMethod)
    generator = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> Tensor:
        return torch.rand(3, *shape, generator=generator)

    sent = method.broadcast(make_server_round(), initialize(method), 0).tensors
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

    def client(
        parts: Sequence[Tensor], client_state: TensorState
    ) -> tuple[Tensor, Tensor, TensorState]:
        y, r, t, w, w_t, label, counts, *rest = parts
        tensors = dict(zip(names, rest, strict=True))
        extras = method.prepare(make_model_outputs(y, t, label))
        step = Step(
            y, r, label, w, w_t, tensors, extras.per_sample, client_state, class_counts=counts
        )
        penalty = method.penalty(step)
        model = ModelState(w, torch.zeros(0), torch.zeros(0).long())
        training = LocalResult(model, w, w_t, steps=3, lr=0.1, loss=0.5, effective_steps=3.0)
        output = method.finish(training, Message({}, tensors), client_state)
        scalars = sum(extras.scalars.values(), torch.zeros(()))
        total = (torch.zeros(()) if penalty is None else penalty) + scalars
        return total, method.calibrate(step), output.state

    copies = [tensor.clone() for tensor in inputs]
    client_state: TensorState = {}
    for _ in range(2):
        stacked = torch.func.vmap(client)(inputs, client_state)
        rows = range(3)
        client_states = [{name: tensor[n] for name, tensor in client_state.items()} for n in rows]
        single = [client([part[n] for part in inputs], client_states[n]) for n in rows]
        for part in range(2):
            expected = torch.stack([result[part] for result in single])  # type: ignore[misc]
            torch.testing.assert_close(stacked[part], expected, check_dtype=False)
        for name, tensor in stacked[2].items():
            torch.testing.assert_close(tensor, torch.stack([result[2][name] for result in single]))
        client_state = stacked[2]
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
def test_method_with_neutral_parameters_equals_fedavg(method: BaseMethod, tmp_path: Path) -> None:
    """Clients of MOON and IFCA are never stacked, so FedAvg must not stack them either."""
    settings = replace(small_settings(4), stack=method.name not in ("moon", "ifca"))
    results, plain = (run_rounds(m, tmp_path, settings) for m in (method, cadis.FedAvg()))
    (model,), (expected,) = get_models(results[-1]), get_models(plain[-1])
    assert is_identical(model.parameters, expected.parameters)
    assert results[-1].record.weights == plain[-1].record.weights
    if method.name == "cadis-paper":
        assert all(result.record.report["clusters"] == [0, 1, 2] for result in results)


@each_method
def test_runs_with_batch_norm(method: BaseMethod, tmp_path: Path) -> None:
    model = small_model(batch_norm=True)
    (*_, last) = run_rounds(method, tmp_path, model=model)
    models = get_models(last)
    assert all(model.is_finite() for model in models)
    assert all(model.counters.dtype == torch.int64 for model in models)
    trained = [model for model in models if model.counters.item() > 0]
    assert trained
    assert not torch.equal(trained[0].buffers, torch.tensor([0.0] * 3 + [1.0] * 3))


@each_method
def test_the_same_seed_gives_the_same_run(method: BaseMethod, tmp_path: Path) -> None:
    model = small_model(dropout=0.3)
    first = run_rounds(method, tmp_path, model=model)[-1]
    torch.manual_seed(1234)  # the global generator must have no effect
    again = run_rounds(method, tmp_path, model=model)[-1]
    for one, other in zip(get_models(first), get_models(again), strict=True):
        assert is_identical(one.parameters, other.parameters)
    assert first.record.loss == again.record.loss


@each_method
def test_one_client_per_round(method: BaseMethod, tmp_path: Path) -> None:
    (*_, last) = run_rounds(method, tmp_path, small_settings(per_round=1))
    assert all(model.is_finite() for model in get_models(last))


@each_method
def test_any_number_of_workers_gives_the_same_bits(method: BaseMethod, tmp_path: Path) -> None:
    """With partial participation; at least one model changes, and all are finite."""
    results, others = (run_rounds(method, tmp_path, small_settings(workers=n)) for n in (1, 2))
    assert [result.record.round for result in results] == [1, 2, 3]
    first, last = (get_models(results[index]) for index in (0, -1))
    assert all(model.is_finite() for model in last)
    assert any(
        not torch.equal(a.parameters, b.parameters) for a, b in zip(first, last, strict=False)
    )
    one, two = results[-1].state.server, others[-1].state.server
    assert one.models.keys() == two.models.keys()
    assert all(map(is_identical, collect_tensors(one), collect_tensors(two)))


@each_method
def test_a_resumed_run_equals_an_uninterrupted_run(method: BaseMethod, tmp_path: Path) -> None:
    """Resume from files only: models, and the states of server and clients."""
    options = {"per_round": 3, "epochs": 1, "batch_size": 4, "lr": 0.1, "seed": 7, "workers": 1}
    whole = run_small(method=method, **options, rounds=4, out=tmp_path / "whole")
    run_small(method=method, **options, rounds=2, out=tmp_path / "part")
    again = run_small(method=method, **options, rounds=4, out=tmp_path / "part", resume=True)
    tensors, expected = (
        load_file(tmp_path / name / "model.safetensors") for name in ("part", "whole")
    )
    assert all(is_identical(tensors[name], tensor) for name, tensor in expected.items())
    for one, other in zip(whole.history, again.history, strict=True):
        assert (one.accuracy, one.participants) == (other.accuracy, other.participants)
        assert one.weights == other.weights
