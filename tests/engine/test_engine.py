"""Rounds of the engine: workers, resuming, failures and shared memory."""

from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from torch import nn

from cadis.algorithm import Algorithm, BaseMethod, average_tensors
from cadis.algorithm.methods import CADIS, FedAvg, FedDyn, FedFA, SingleSet
from cadis.data import Samples
from cadis.engine import Engine, EngineSettings, Federation, transport
from cadis.engine.pool import choose_workers
from cadis.engine.shared_memory import SharedMemory, count_bytes
from cadis.errors import CadisError, RunError
from cadis.models import FlatModel
from cadis.server import RoundResult
from cadis.training import choose_device
from cadis.types import Message, ModelState
from parts_support import is_same_message, make_message
from support import (
    blobs,
    get_model,
    is_identical,
    run_rounds,
    small_federation,
    small_model,
    small_settings,
    train_locally,
)


def are_identical(first: list[RoundResult], second: list[RoundResult]) -> bool:
    """Return whether two runs have the same models and the same records, except for times."""

    def to_json(result: RoundResult) -> dict[str, object]:
        return {k: v for k, v in result.record.to_json().items() if k != "seconds"}

    models = (
        is_identical(tensor, expected)
        for one, other in zip(first, second, strict=True)
        for tensor, expected in zip(
            vars(get_model(one)).values(), vars(get_model(other)).values(), strict=True
        )
    )
    return all(models) and [to_json(r) for r in first] == [to_json(r) for r in second]


@pytest.mark.parametrize(
    "method", [FedAvg(), FedFA(beta=0.5), FedDyn(), CADIS(transitive="sample")]
)
def test_one_and_two_workers_give_identical_results(method: BaseMethod, tmp_path: Path) -> None:
    model = small_model(batch_norm=True, dropout=0.2)
    one_worker = run_rounds(method, tmp_path, small_settings(3, workers=1), model)
    two_workers = run_rounds(method, tmp_path, small_settings(3, workers=2), model)
    assert are_identical(one_worker, two_workers)


def test_spawned_workers_give_identical_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systems other than Linux spawn workers instead of forking them."""
    forked = run_rounds(FedDyn(), tmp_path, small_settings(2, workers=2))
    monkeypatch.setattr(transport, "get_mp_context", lambda: get_context("spawn"))
    spawned = run_rounds(FedDyn(), tmp_path, small_settings(2, workers=2))
    assert are_identical(forked, spawned)


def test_round_equals_a_plain_loop(tmp_path: Path) -> None:
    (result,) = run_rounds(FedAvg(), tmp_path, small_settings(rounds=1, per_round=5))
    federation, states, sizes = small_federation(), [], []
    from cadis.rng import derive_generator

    for client in range(5):
        model = FlatModel(small_model())
        samples = federation.clients[client]
        generator = derive_generator(7, "train", 1, client)
        train_locally(
            model, FedAvg(), samples, model.copy_state(), {}, small_settings().local, generator
        )
        states.append({"w": model.copy_state().parameters})
        sizes.append(len(samples))
    mean = average_tensors(states, [size / sum(sizes) for size in sizes])
    torch.testing.assert_close(get_model(result).parameters, mean["w"], rtol=0, atol=1e-7)


@pytest.mark.parametrize("method", [FedAvg(), SingleSet()])
def test_global_model_is_tested_on_every_clients_own_data(
    method: BaseMethod, tmp_path: Path
) -> None:
    settings = replace(small_settings(rounds=5, workers=2), test_clients=2)
    results = run_rounds(method, tmp_path, settings)
    is_tested = [result.record.client_accuracy is not None for result in results]
    assert is_tested == [False, True, False, True, True]  # every other round, and the last
    model = FlatModel(small_model(), "7")
    for result in results:
        if result.record.client_accuracy is not None:
            model.load(get_model(result))
            model.module.eval()
            by_hand = [
                float((model.module(c.inputs).argmax(dim=1) == c.labels).double().mean())
                for c in small_federation().clients
            ]
            assert result.record.client_accuracy == pytest.approx(by_hand)
    never = run_rounds(method, tmp_path / "never", replace(settings, test_clients=0))
    assert all(result.record.client_accuracy is None for result in never)


@pytest.mark.parametrize("method", [FedAvg(), FedDyn(), FedFA(beta=1), CADIS(), SingleSet()])
def test_resumed_run_equals_an_uninterrupted_run(method: BaseMethod, tmp_path: Path) -> None:
    whole = run_rounds(method, tmp_path, small_settings(rounds=4))
    first = run_rounds(method, tmp_path, small_settings(rounds=2))
    rest = run_rounds(method, tmp_path, small_settings(rounds=4), start=first[-1].state)
    assert are_identical(whole, first + rest)


def test_client_that_diverges_is_rejected(tmp_path: Path) -> None:
    federation = small_federation()
    clients = list(federation.clients)
    clients[3] = Samples(clients[3].inputs * 1e37, clients[3].labels)
    broken = Federation(clients, federation.test, ("a", "b", "c", "d", "e"))
    for workers in (1, 2):
        settings = small_settings(rounds=2, workers=workers, per_round=5)
        engine = Engine(small_model(), broken, Algorithm(CADIS()), settings, tmp_path)
        for result in engine.rounds(engine.start):
            assert result.record.participants == ["a", "b", "c", "e"]
            assert [r.client for r in result.record.rejected] == ["d"]
            assert "NaN or infinite" in result.record.rejected[0].reason
            assert sum(result.record.weights) == pytest.approx(1)
            assert get_model(result).is_finite()


class Failing(nn.Module):
    """A model that calls a function when it is trained."""

    def __init__(self, failure: Callable[[], None]) -> None:
        super().__init__()
        self.head, self.failure = nn.Linear(16, 5), failure

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.failure()
        logits: torch.Tensor = self.head(x.flatten(1))
        return logits


def fail() -> None:
    raise ZeroDivisionError("by design")


def test_error_in_a_worker_names_the_client(tmp_path: Path) -> None:
    for workers in (1, 2):
        settings = small_settings(workers=workers)
        with pytest.raises(
            RunError, match=r"client \d failed: ZeroDivisionError: by design"
        ) as caught:
            run_rounds(FedAvg(), tmp_path, settings, Failing(fail))
        assert "raise ZeroDivisionError" in caught.value.__notes__[0]


def test_model_and_number_of_threads_of_the_user_do_not_change(tmp_path: Path) -> None:
    model = small_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.set_num_threads(3)
    run_rounds(FedAvg(), tmp_path, model=model)
    assert torch.get_num_threads() == 3
    torch.set_num_threads(1)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())


def test_invalid_federation_is_an_error(tmp_path: Path) -> None:
    federation = small_federation()
    empty = Samples(torch.zeros(0, 1, 4, 4), torch.zeros(0).long())
    cases = {
        "Client 1 has no samples": Federation([blobs(3, [0], 0), empty], federation.test),
        "at least one client": Federation([], federation.test),
        "2 clients have the id 0": Federation(federation.clients, federation.test, (0, 0, 1, 2, 3)),
        "label 7, but the model has only 5": Federation(
            [Samples(torch.zeros(1, 1, 4, 4), torch.tensor([7]))], federation.test
        ),
        "The test set has no samples": Federation(federation.clients, empty),
    }
    for sentence, broken in cases.items():
        with pytest.raises(CadisError, match=sentence):
            Engine(small_model(), broken, Algorithm(), small_settings(), tmp_path)


def test_more_participants_than_clients_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CadisError, match=r"per_round is 9, .* at most 5"):
        run_rounds(FedAvg(), tmp_path, small_settings(per_round=9))


def test_choice_of_device_and_workers() -> None:
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
def test_message_in_shared_memory_is_identical(method: str) -> None:
    sent = [
        make_message(1),
        make_message(2, torch.float64),
        make_message(3, torch.float16),
        Message(scalars={"loss": 0.5}),
        Message({"m": ModelState(torch.zeros(0), torch.zeros(0), torch.tensor([2**62]))}),
        Message(tensors={"matrix": torch.rand(3, 5), "flag": torch.tensor([True, False])}),
    ]
    shared = SharedMemory(count_bytes(sent), get_context(method))  # type: ignore[arg-type]
    for written, expected in zip(shared.write(sent), sent, strict=True):
        assert is_same_message(shared.read(written), expected)


def test_shared_tensors_are_copied_once() -> None:
    first = make_message(1)
    both = [first, Message(first.models, scalars={"which": 2.0})]
    assert count_bytes(both) == count_bytes([first])
    shared = SharedMemory(count_bytes(both), get_context("fork"))
    one, other = shared.write(both)
    assert one.refs["models/model/parameters"] == other.refs["models/model/parameters"]
    assert shared.read(other).scalars == {"which": 2.0}


def test_message_is_a_view_of_shared_memory() -> None:
    shared = SharedMemory(count_bytes([make_message(1)]), get_context("fork"))
    (written,) = shared.write([make_message(1)])
    view = shared.read(written)
    shared.write([make_message(2)])
    assert is_same_message(
        Message(view.models, view.tensors, make_message(2).scalars), make_message(2)
    )
