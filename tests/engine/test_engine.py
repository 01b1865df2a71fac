import os
import signal
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from torch import nn

from cadis.algorithm import Algorithm, BaseMethod, weighted_mean
from cadis.algorithm.methods import CADIS, FedAvg, FedDyn, FedFA, SingleSet
from cadis.data import Examples
from cadis.engine import Engine, EngineSettings, Federation, transport
from cadis.engine.pool import choose_workers
from cadis.engine.shared_memory import SharedMemory, nbytes_of
from cadis.errors import CadisError, RunError
from cadis.models import FlatModel
from cadis.server import RoundResult
from cadis.training import choose_device
from cadis.types import Message, ModelState
from parts_support import message, same_message
from support import (
    blobs,
    model_after,
    run_rounds,
    same,
    small_federation,
    small_model,
    small_settings,
    train_locally,
)


def identical(first: list[RoundResult], second: list[RoundResult]) -> bool:
    """Whether two runs had the same models and the same records, but for the time they took."""

    def told(result: RoundResult) -> dict[str, object]:
        return {k: v for k, v in result.record.to_json().items() if k != "seconds"}

    models = (
        same(mine, theirs)
        for one, other in zip(first, second, strict=True)
        for mine, theirs in zip(
            vars(model_after(one)).values(), vars(model_after(other)).values(), strict=True
        )
    )
    return all(models) and [told(r) for r in first] == [told(r) for r in second]


@pytest.mark.parametrize(
    "method", [FedAvg(), FedFA(beta=0.5), FedDyn(), CADIS(transitive="sample")]
)
def test_one_and_two_workers_give_the_same_bits(method: BaseMethod, tmp_path: Path) -> None:
    model = small_model(batch_norm=True, dropout=0.2)
    alone = run_rounds(method, tmp_path, small_settings(3, workers=1), model)
    together = run_rounds(method, tmp_path, small_settings(3, workers=2), model)
    assert identical(alone, together)


def test_started_anew_workers_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on systems that cannot fork."""
    forked = run_rounds(FedDyn(), tmp_path, small_settings(2, workers=2))
    monkeypatch.setattr(transport, "process_context", lambda: get_context("spawn"))
    spawned = run_rounds(FedDyn(), tmp_path, small_settings(2, workers=2))
    assert identical(forked, spawned)


def test_a_round_is_what_a_plain_loop_does(tmp_path: Path) -> None:
    (result,) = run_rounds(FedAvg(), tmp_path, small_settings(rounds=1, per_round=5))
    federation, states, sizes = small_federation(), [], []
    from cadis.rng import generator_for

    for client in range(5):
        model = FlatModel(small_model())
        examples = federation.clients[client]
        generator = generator_for(7, "train", 1, client)
        train_locally(
            model, FedAvg(), examples, model.state(), {}, small_settings().local, generator
        )
        states.append({"w": model.state().parameters})
        sizes.append(len(examples))
    mean = weighted_mean(states, [size / sum(sizes) for size in sizes])
    torch.testing.assert_close(model_after(result).parameters, mean["w"], rtol=0, atol=1e-7)


@pytest.mark.parametrize("method", [FedAvg(), SingleSet()])
def test_the_global_model_is_tested_on_every_clients_own_data(
    method: BaseMethod, tmp_path: Path
) -> None:
    settings = replace(small_settings(rounds=5, workers=2), test_clients=2)
    results = run_rounds(method, tmp_path, settings)
    measured = [result.record.client_accuracy is not None for result in results]
    assert measured == [False, True, False, True, True]  # every other round, and the last
    model = FlatModel(small_model(), "7")
    for result in results:
        if result.record.client_accuracy is not None:
            model.load(model_after(result))
            model.module.eval()
            by_hand = [
                float((model.module(c.inputs).argmax(dim=1) == c.labels).double().mean())
                for c in small_federation().clients
            ]
            assert result.record.client_accuracy == pytest.approx(by_hand)
    never = run_rounds(method, tmp_path / "never", replace(settings, test_clients=0))
    assert all(result.record.client_accuracy is None for result in never)


@pytest.mark.parametrize("method", [FedAvg(), FedDyn(), FedFA(beta=1), CADIS(), SingleSet()])
def test_going_on_equals_never_having_stopped(method: BaseMethod, tmp_path: Path) -> None:
    whole = run_rounds(method, tmp_path, small_settings(rounds=4))
    first = run_rounds(method, tmp_path, small_settings(rounds=2))
    rest = run_rounds(method, tmp_path, small_settings(rounds=4), start=first[-1].state)
    assert identical(whole, first + rest)


def test_a_client_that_diverges_is_left_out_by_name(tmp_path: Path) -> None:
    federation = small_federation()
    clients = list(federation.clients)
    clients[3] = Examples(clients[3].inputs * 1e37, clients[3].labels)
    broken = Federation(clients, federation.test, ("a", "b", "c", "d", "e"))
    for workers in (1, 2):
        settings = small_settings(rounds=2, workers=workers, per_round=5)
        engine = Engine(small_model(), broken, Algorithm(CADIS()), settings, tmp_path)
        for result in engine.rounds(engine.start):
            assert result.record.participants == ["a", "b", "c", "e"]
            assert [r.client for r in result.record.rejected] == ["d"]
            assert "not a number" in result.record.rejected[0].reason
            assert sum(result.record.weights) == pytest.approx(1)
            assert model_after(result).is_finite()


class Failing(nn.Module):
    """A model that does something terrible when it is trained."""

    def __init__(self, deed: Callable[[], None]) -> None:
        super().__init__()
        self.head, self.deed = nn.Linear(16, 5), deed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.deed()
        logits: torch.Tensor = self.head(x.flatten(1))
        return logits


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise ZeroDivisionError("by design")


def test_a_worker_that_dies_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="worker process died"):
        run_rounds(FedAvg(), tmp_path, small_settings(workers=2), Failing(die))


def test_an_error_in_a_worker_is_told(tmp_path: Path) -> None:
    for workers in (1, 2):
        settings = small_settings(workers=workers)
        with pytest.raises(
            RunError, match=r"client \d failed: ZeroDivisionError: by design"
        ) as told:
            run_rounds(FedAvg(), tmp_path, settings, Failing(fail))
        assert "raise ZeroDivisionError" in told.value.__notes__[0]


def test_the_users_model_and_threads_are_left_alone(tmp_path: Path) -> None:
    model = small_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.set_num_threads(3)
    run_rounds(FedAvg(), tmp_path, model=model)
    assert torch.get_num_threads() == 3
    torch.set_num_threads(1)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())


def test_federations_that_cannot_be_trained(tmp_path: Path) -> None:
    federation = small_federation()
    empty = Examples(torch.zeros(0, 1, 4, 4), torch.zeros(0).long())
    cases = {
        "Client 1 has no samples": Federation([blobs(3, [0], 0), empty], federation.test),
        "at least one client": Federation([], federation.test),
        "an id of its own": Federation(federation.clients, federation.test, (0, 0, 1, 2, 3)),
        "label 7, but the model tells only 5": Federation(
            [Examples(torch.zeros(1, 1, 4, 4), torch.tensor([7]))], federation.test
        ),
        "The test set has no samples": Federation(federation.clients, empty),
    }
    for sentence, broken in cases.items():
        with pytest.raises(CadisError, match=sentence):
            Engine(small_model(), broken, Algorithm(), small_settings(), tmp_path)


def test_more_participants_than_clients(tmp_path: Path) -> None:
    with pytest.raises(CadisError, match=r"9 clients cannot take part .* at most 5"):
        run_rounds(FedAvg(), tmp_path, small_settings(per_round=9))


def test_devices_and_workers() -> None:
    cpu = torch.device("cpu")
    assert choose_device("cpu") == cpu
    if not torch.cuda.is_available():
        with pytest.raises(CadisError, match="no 'cuda' device"):
            choose_device("cuda")
    assert choose_workers(8, cpu, per_round=3) == 3
    assert choose_workers(8, torch.device("cuda"), per_round=3) == 1
    assert choose_workers("auto", cpu, per_round=10**6) >= 1
    assert EngineSettings(1).workers == "auto"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_there_and_back_is_bit_for_bit(method: str) -> None:
    sent = [
        message(1),
        message(2, torch.float64),
        message(3, torch.float16),
        Message(scalars={"loss": 0.5}),
        Message({"m": ModelState(torch.zeros(0), torch.zeros(0), torch.tensor([2**62]))}),
        Message(tensors={"matrix": torch.rand(3, 5), "flag": torch.tensor([True, False])}),
    ]
    memory = SharedMemory(nbytes_of(sent), get_context(method))  # type: ignore[arg-type]
    for placed, expected in zip(memory.put(sent), sent, strict=True):
        assert same_message(memory.get(placed), expected)


def test_what_messages_share_is_copied_once() -> None:
    first = message(1)
    both = [first, Message(first.models, scalars={"which": 2.0})]
    assert nbytes_of(both) == nbytes_of([first])
    memory = SharedMemory(nbytes_of(both), get_context("fork"))
    one, other = memory.put(both)
    assert one.places["models/model/parameters"] == other.places["models/model/parameters"]
    assert memory.get(other).scalars == {"which": 2.0}


def test_a_message_is_a_view() -> None:
    memory = SharedMemory(nbytes_of([message(1)]), get_context("fork"))
    (placed,) = memory.put([message(1)])
    seen = memory.get(placed)
    memory.put([message(2)])
    assert same_message(Message(seen.models, seen.tensors, message(2).scalars), message(2))
