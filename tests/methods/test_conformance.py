"""One table over all methods: what every method must do."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cadis.core import ClientUpdate, Message, ModelState, TensorState, generator_for
from cadis.methods import Defaults, Method, ServerRound, ServerState, Step, Training
from support import (
    ALL_METHODS,
    model_after,
    run_rounds,
    same,
    small_model,
    small_settings,
    state_of,
    update_of,
    view,
)

each_method = pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.name)

HEAD = (slice(4, 10), slice(10, 12))


def server_round(number: int = 1) -> ServerRound:
    return ServerRound(number, HEAD, num_clients=6, generator=generator_for(0, number))


def sent(number: int = 1, memory: TensorState | None = None) -> ServerState:
    generator = torch.Generator().manual_seed(number)
    numbers = torch.randn(12, generator=generator)
    return state_of(ModelState(numbers, torch.zeros(2), torch.tensor([3])), memory)


def updates(clients: list[int], seed: int = 0) -> list[ClientUpdate]:
    generator = torch.Generator().manual_seed(seed)
    return [
        update_of(
            client,
            10 + client,
            ModelState(
                torch.randn(12, generator=generator),
                torch.rand(2, generator=generator),
                torch.tensor([client]),
            ),
            received_accuracy=0.1 * client,
        )
        for client in clients
    ]


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
def test_aggregation_is_deterministic_and_changes_no_input(method: Method) -> None:
    memory = method.aggregate(server_round(1), updates([0, 1, 2, 3]), sent()).memory
    inputs = server_round(2), updates([1, 2, 4], seed=1), sent(2, memory)
    before = [tensor.clone() for tensor in tensors_in(list(inputs))]
    first = method.aggregate(*inputs)
    again = method.aggregate(server_round(2), updates([1, 2, 4], seed=1), sent(2, memory))
    assert all(map(same, tensors_in(list(inputs)), before))
    assert all(map(torch.equal, tensors_in(first.models), tensors_in(again.models)))


@each_method
def test_weights_are_shares_and_everything_is_finite(method: Method) -> None:
    result = method.aggregate(server_round(), updates([0, 1, 2, 3]), sent())
    assert result.weights.shape == (4,)
    assert result.weights.sum().item() == pytest.approx(1)
    assert (result.weights >= 0).all()
    assert result.models["model"].is_finite()
    assert result.models["model"].counters.tolist() == [3]
    assert result.models["model"].counters.dtype == torch.int64


@each_method
def test_one_participant(method: Method) -> None:
    (update,) = updates([2])
    result = method.aggregate(server_round(), [update], sent())
    assert result.weights.tolist() == [1]
    assert result.models["model"].is_finite()
    if method.name != "feddyn":  # whose server adds its correction
        assert torch.equal(result.models["model"].parameters, update.model.parameters)


@each_method
def test_server_state_survives_saving_and_loading(method: Method, tmp_path: Path) -> None:
    memory: Mapping[str, Tensor] = {}
    for number, clients in enumerate(([0, 1, 2], [1, 3, 4], [2, 4, 5]), start=1):
        kept = method.aggregate(
            server_round(number), updates(clients, number), sent(number, memory)
        )
        if memory:
            save_file(dict(memory), tmp_path / "state")
            loaded = load_file(tmp_path / "state")
            again = method.aggregate(
                server_round(number), updates(clients, number), sent(number, loaded)
            )
            assert all(map(torch.equal, tensors_in(kept.models), tensors_in(again.models)))
        memory = kept.memory


@each_method
def test_client_half_is_pure_and_can_be_stacked(method: Method) -> None:
    """Several clients at once under vmap give what each gives alone."""
    assert isinstance(method, Defaults)
    generator = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> Tensor:
        return torch.rand(3, *shape, generator=generator)

    logits, features, teacher = rand(5, 4), rand(5, 6), rand(5, 6)
    parameters, received, memory = rand(12), rand(12), rand(12)
    labels = torch.randint(0, 4, (3, 5), generator=generator)

    def client(*parts: Tensor) -> tuple[Tensor, Tensor]:
        y, r, t, w, w_t, g, label = parts
        prepared = method.prepare(view(y, t, label))
        step = Step(y, r, label, w, w_t, {}, prepared.per_example, {"gradient": g})
        penalty = method.penalty(step)
        model = ModelState(w, torch.zeros(0), torch.zeros(0).long())
        training = Training(model, w, w_t, steps=3, lr=0.1, loss=0.5)
        new = method.finish(training, Message(), {"gradient": g}).memory
        scalars = sum(prepared.scalars.values(), torch.zeros(()))
        return (torch.zeros(()) if penalty is None else penalty) + scalars, new["gradient"]

    tensors = logits, features, teacher, parameters, received, memory, labels
    copies = [tensor.clone() for tensor in tensors]
    stacked = torch.func.vmap(client)(*tensors)
    alone = [client(*(tensor[n] for tensor in tensors)) for n in range(3)]
    for part in range(2):
        expected = torch.stack([result[part] for result in alone])
        torch.testing.assert_close(stacked[part], expected, check_dtype=False)
    assert all(map(torch.equal, tensors, copies))


@each_method
def test_runs_with_partial_participation(method: Method, tmp_path: Path) -> None:
    results = run_rounds(method, tmp_path)
    assert [result.record.round for result in results] == [1, 2, 3]
    assert model_after(results[-1]).is_finite()
    assert not torch.equal(model_after(results[0]).parameters, model_after(results[-1]).parameters)


@each_method
def test_runs_with_batch_norm(method: Method, tmp_path: Path) -> None:
    model = small_model(batch_norm=True)
    (*_, last) = run_rounds(method, tmp_path, model=model)
    assert model_after(last).is_finite()
    assert model_after(last).counters.dtype == torch.int64
    assert model_after(last).counters.item() > 0
    assert not torch.equal(model_after(last).buffers, torch.tensor([0.0] * 3 + [1.0] * 3))


@each_method
def test_the_same_seed_gives_the_same_run(method: Method, tmp_path: Path) -> None:
    model = small_model(dropout=0.3)
    first = run_rounds(method, tmp_path, model=model)[-1]
    torch.manual_seed(1234)  # global randomness must not matter
    again = run_rounds(method, tmp_path, model=model)[-1]
    assert same(model_after(first).parameters, model_after(again).parameters)
    assert first.record.loss == again.record.loss


@each_method
def test_one_client_a_round(method: Method, tmp_path: Path) -> None:
    (*_, last) = run_rounds(method, tmp_path, small_settings(per_round=1))
    assert model_after(last).is_finite()
