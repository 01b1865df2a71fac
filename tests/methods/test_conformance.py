"""One table over all methods: what every method must do."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cadis.core import ModelState, generator_for
from cadis.methods import ClientUpdate, LocalView, Method, ServerRound, Step
from support import ALL_METHODS, run_rounds, same, small_model, small_settings

each_method = pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.name)

HEAD = (slice(4, 10), slice(10, 12))


def server_round(number: int = 1) -> ServerRound:
    generator = torch.Generator().manual_seed(number)
    sent = ModelState(torch.randn(12, generator=generator), torch.zeros(2), torch.tensor([3]))
    return ServerRound(number, sent, HEAD, num_clients=6, generator=generator_for(0, number))


def updates(clients: list[int], seed: int = 0) -> list[ClientUpdate]:
    generator = torch.Generator().manual_seed(seed)
    return [
        ClientUpdate(
            client,
            10 + client,
            ModelState(
                torch.randn(12, generator=generator),
                torch.rand(2, generator=generator),
                torch.tensor([client]),
            ),
            {"received_accuracy": 0.1 * client},
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
    state = method.aggregate(server_round(1), updates([0, 1, 2, 3]), {}).method_state
    inputs = server_round(2), updates([1, 2, 4], seed=1), state
    before = [tensor.clone() for tensor in tensors_in(list(inputs))]
    first = method.aggregate(*inputs)
    again = method.aggregate(server_round(2), updates([1, 2, 4], seed=1), state)
    assert all(map(same, tensors_in(list(inputs)), before))
    assert all(map(torch.equal, tensors_in(first.state), tensors_in(again.state)))


@each_method
def test_weights_are_shares_and_everything_is_finite(method: Method) -> None:
    result = method.aggregate(server_round(), updates([0, 1, 2, 3]), {})
    assert result.weights.shape == (4,)
    assert result.weights.sum().item() == pytest.approx(1)
    assert (result.weights >= 0).all()
    assert result.state.is_finite()
    assert result.state.counters.tolist() == [3]
    assert result.state.counters.dtype == torch.int64


@each_method
def test_one_participant(method: Method) -> None:
    (update,) = updates([2])
    result = method.aggregate(server_round(), [update], {})
    assert result.weights.tolist() == [1]
    assert result.state.is_finite()
    if method.name != "feddyn":  # whose server adds its correction
        assert torch.equal(result.state.parameters, update.state.parameters)


@each_method
def test_server_state_survives_saving_and_loading(method: Method, tmp_path: Path) -> None:
    state: Mapping[str, Tensor] = {}
    for number, clients in enumerate(([0, 1, 2], [1, 3, 4], [2, 4, 5]), start=1):
        kept = method.aggregate(server_round(number), updates(clients, number), state)
        if state:
            save_file(dict(state), tmp_path / "state")
            loaded = load_file(tmp_path / "state")
            again = method.aggregate(server_round(number), updates(clients, number), loaded)
            assert all(map(torch.equal, tensors_in(kept.state), tensors_in(again.state)))
        state = kept.method_state


@each_method
def test_client_half_is_pure_and_can_be_stacked(method: Method) -> None:
    """Several clients at once under vmap give what each gives alone."""
    generator = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> Tensor:
        return torch.rand(3, *shape, generator=generator)

    logits, features, teacher = rand(5, 4), rand(5, 6), rand(5, 6)
    parameters, received, memory = rand(12), rand(12), rand(12)
    labels = torch.randint(0, 4, (3, 5), generator=generator)

    def client(*parts: Tensor) -> tuple[Tensor, Tensor]:
        y, r, t, w, w_t, g, label = parts
        view = method.prepare(LocalView(y, t, label))
        step = Step(y, r, label, w, w_t, view.per_example, {"gradient": g})
        penalty = method.penalty(step)
        new = method.finish(w, w_t, {"gradient": g})
        metrics = sum(view.metrics.values(), torch.zeros(()))
        return (torch.zeros(()) if penalty is None else penalty) + metrics, new["gradient"]

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
    assert results[-1].state.model.is_finite()
    assert not torch.equal(results[0].state.model.parameters, results[-1].state.model.parameters)


@each_method
def test_runs_with_batch_norm(method: Method, tmp_path: Path) -> None:
    model = small_model(batch_norm=True)
    (*_, last) = run_rounds(method, tmp_path, model=model)
    assert last.state.model.is_finite()
    assert last.state.model.counters.dtype == torch.int64
    assert last.state.model.counters.item() > 0
    assert not torch.equal(last.state.model.buffers, torch.tensor([0.0] * 3 + [1.0] * 3))


@each_method
def test_the_same_seed_gives_the_same_run(method: Method, tmp_path: Path) -> None:
    model = small_model(dropout=0.3)
    first = run_rounds(method, tmp_path, model=model)[-1]
    torch.manual_seed(1234)  # global randomness must not matter
    again = run_rounds(method, tmp_path, model=model)[-1]
    assert same(first.state.model.parameters, again.state.model.parameters)
    assert first.evaluation.total_loss == again.evaluation.total_loss


@each_method
def test_one_client_a_round(method: Method, tmp_path: Path) -> None:
    (*_, last) = run_rounds(method, tmp_path, small_settings(per_round=1))
    assert last.state.model.is_finite()
