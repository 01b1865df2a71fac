"""Rounds with parts that return invalid results, and with invalid updates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Literal

import pytest
import torch
from torch import Tensor

from cadis.algorithm import (
    Algorithm,
    BaseMethod,
    ClientOutput,
    ClientWeights,
    LocalResult,
    ServerRound,
    ServerState,
)
from cadis.algorithm.methods import FedAvg, FedFA
from cadis.algorithm.samplers import SamplerRound, Uniform
from cadis.algorithm.tasks import Classification
from cadis.algorithm.transforms import NormBound, TransformRound
from cadis.errors import CadisError, RunError
from cadis.server import find_defect, limit_counts
from cadis.server.validation import split_valid
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState
from support import get_model, is_identical, make_server_state, run_rounds, small_settings


@dataclass(frozen=True)
class FixedSampler(Uniform):
    """Chooses given clients."""

    chosen: tuple[ClientId, ...] = ()

    def choose(self, server_round: SamplerRound, state: TensorState) -> Sequence[ClientId]:  # noqa: ARG002
        return self.chosen


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ((), "chose 0 clients; it must choose 1 to 3"),
        ((0, 0), "chose a client twice"),
        ((0, 9), "chose 9, which is not an available client"),
        ((0, 1, 2, 3), "chose 4 clients; it must choose 1 to 3"),
    ],
)
def test_invalid_choice_of_a_sampler_is_an_error(
    chosen: tuple[ClientId, ...], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(CadisError, match=f"sampler uniform {problem}"):
        run_rounds(Algorithm(FedAvg(), sampler=FixedSampler(chosen)), tmp_path)


def test_sampler_may_choose_fewer_clients(tmp_path: Path) -> None:
    results = run_rounds(Algorithm(FedAvg(), sampler=FixedSampler((3, 1))), tmp_path)
    assert [result.record.participants for result in results] == [[3, 1]] * 3


@dataclass(frozen=True)
class Growing(BaseMethod):
    """Clients send more tensors in each round; the server keeps them and sends them back."""

    name: ClassVar[str] = "growing"

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        model = super().broadcast(server_round, state, client)
        return Message(model.models, state.tensors)

    def finish(
        self, result: LocalResult, received: Message, client_state: TensorState
    ) -> ClientOutput:
        count = 3 * (len(received.tensors) + 1)
        sent = {f"copy-{n}": result.trained * (n + 1) for n in range(count)}
        return ClientOutput(client_state, sent)

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> ClientWeights:
        weights = super().weigh(server_round, updates, state)
        return replace(weights, tensors=updates[0].message.tensors)


def test_messages_may_grow_and_kept_tensors_are_not_overwritten(tmp_path: Path) -> None:
    one_worker, two_workers = (
        run_rounds(Growing(), tmp_path, small_settings(3, workers=workers)) for workers in (1, 2)
    )
    sizes = [len(result.state.server.tensors) for result in two_workers]
    assert sizes == [3, 12, 39]
    for result in two_workers:  # states of earlier rounds too
        tensors = result.state.server.tensors
        assert torch.equal(tensors["copy-1"], 2 * tensors["copy-0"])
    for one, other in zip(one_worker, two_workers, strict=True):
        assert is_identical(get_model(one).parameters, get_model(other).parameters)
        expected = one.state.server.tensors
        tensors = other.state.server.tensors
        assert all(is_identical(expected[name], tensor) for name, tensor in tensors.items())
    for first, second in pairwise(two_workers):
        assert not torch.equal(
            first.state.server.tensors["copy-0"], second.state.server.tensors["copy-0"]
        )


def make_model(parameters: Tensor) -> ModelState:
    return ModelState(parameters, torch.zeros(0), torch.zeros(0).long())


STATE = make_server_state(make_model(torch.zeros(3)))
VALID = Message({"model": make_model(torch.ones(3))}, scalars={"received_accuracy": 0.5})


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (ClientUpdate(1, 5, VALID), None),
        (ClientUpdate(1, 0, VALID), "it reports 0 samples"),
        (ClientUpdate(1, 5, replace(VALID, models={})), "it sent no model"),
        (
            ClientUpdate(1, 5, Message({"x": VALID.model})),
            "it sent a model 'x', which does not exist on the server",
        ),
        (
            ClientUpdate(1, 5, Message({"model": make_model(torch.ones(4))})),
            "its model does not have the size of the global model",
        ),
        (
            ClientUpdate(1, 5, replace(VALID, scalars={})),
            "it did not send received_accuracy, which fed",
        ),
        (
            ClientUpdate(1, 5, replace(VALID, models={"model": make_model(torch.ones(3) / 0)})),
            "its model has NaN or infinite values",
        ),
        (
            ClientUpdate(1, 5, replace(VALID, tensors={"extra": torch.ones(2) / 0})),
            "its extra has NaN or infinite values",
        ),
        (
            ClientUpdate(1, 5, replace(VALID, scalars={"received_accuracy": float("nan")})),
            "its received_accuracy is NaN or infinite",
        ),
    ],
)
def test_invalid_updates_are_rejected(update: ClientUpdate, reason: str | None) -> None:
    defect = find_defect(update, FedFA(), STATE)
    assert (defect is None) if reason is None else str(defect).startswith(reason)


def test_server_applies_the_norm_bound(tmp_path: Path) -> None:
    bounded = Algorithm(FedAvg(), transforms=(NormBound(max_norm=0.01),))
    first, second = run_rounds(bounded, tmp_path, small_settings(rounds=2))
    step = get_model(second).parameters - get_model(first).parameters
    assert 0 < float(step.norm()) <= 0.01 * (1 + 1e-5)


@pytest.mark.parametrize(
    ("counts", "limit", "expected"),
    [
        ([10, 20, 90], 2, [10, 20, 60]),  # 2/3 of 90
        ([9, 11, 10**9, 15, 17], 2, [9, 11, 34, 15, 17]),  # 34 is at most 2/5 of 86
        ([10**9, 5, 5, 5, 5, 10**9], 2, [20, 5, 5, 5, 5, 20]),  # 1/3 of 60 for both
        ([1, 900], 2, [1, 2]),
        ([5, 9, 9], 1, [5, 5, 5]),
        ([5, 900], None, [5, 900]),
        ([900], 2, [900]),
        ([], 2, []),
    ],
)
def test_share_of_a_count_is_limited(
    counts: list[int], limit: float | None, expected: list[int]
) -> None:
    assert limit_counts(counts, limit) == expected


@dataclass(frozen=True)
class Faulty(BaseMethod):
    """A method with one fault."""

    name: ClassVar[str] = "faulty"
    fault: str = ""

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:
        state = super().init(model, generator)
        return ServerState({}) if self.fault == "no model" else state

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        message = super().broadcast(server_round, state, client)
        return state.models if self.fault == "no message" else message  # type: ignore[return-value]

    def model_name_for(self, client: ClientId, state: ServerState) -> str:
        return "mine" if self.fault == "no such model" else super().model_name_for(client, state)

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> ClientWeights:
        if self.fault == "raises":
            raise KeyError("control")
        weights = super().weigh(server_round, updates, state)
        changes: dict[str, dict[str, object]] = {
            "state": {"tensors": {"rounds": 3}},
            "report": {"report": {"loss": 0.5}},
            "weights": {"weights": -weights.weights},
            "too few": {"weights": weights.weights[:1]},
        }
        return replace(weights, **changes.get(self.fault, {}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("no model", "faulty.init must return a ServerState with at least one model"),
        ("no message", "faulty.broadcast must return a Message with at least one model"),
        ("no such model", "faulty failed in broadcast: KeyError: 'mine'"),
        ("raises", "faulty failed in aggregate: KeyError: 'control'"),
        ("state", "The state of faulty must be named tensors, but 'rounds' is a int"),
        ("report", "The report of faulty must be named tensors, but 'loss' is a float"),
        ("weights", "are invalid; weights must not be negative"),
        ("too few", "There are 1 weights for 3 updates"),
    ],
)
def test_faults_of_a_method_are_errors_that_name_it(
    fault: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises((CadisError, RunError), match=sentence):
        run_rounds(Faulty(fault), tmp_path)


def test_update_with_other_tensors_than_the_majority_is_rejected() -> None:
    def make_update(client: int, extra: Tensor) -> ClientUpdate:
        return ClientUpdate(client, 5, replace(VALID, tensors={"extra": extra}))

    extras = [torch.ones(3), torch.ones(2), torch.zeros(3), torch.ones(3).double()]
    updates = [make_update(client, extra) for client, extra in enumerate(extras)]
    valid, rejected = split_valid(updates, FedFA(), STATE)
    assert [update.client_id for update in valid] == [0, 2]
    assert [r.client for r in rejected] == [1, 3]
    assert rejected[0].reason.startswith("its tensors differ in name, shape or dtype")


@dataclass(frozen=True)
class Truncating(NormBound):
    """Changes the shape of an update."""

    name: ClassVar[str] = "truncating"

    def apply(self, update: Message, server_round: TransformRound) -> Message:  # noqa: ARG002
        return Message({"model": replace(update.model, parameters=update.model.parameters[:3])})


@dataclass(frozen=True)
class WrongSide(NormBound):
    """A transform with an invalid side."""

    side: ClassVar[Literal["client", "server"]] = "sever"  # type: ignore[assignment]


def test_faults_of_transforms_are_errors(tmp_path: Path) -> None:
    with pytest.raises(
        RunError,
        match=r"After the transform truncating, the update of client . is invalid: its model",
    ):
        run_rounds(Algorithm(FedAvg(), transforms=(Truncating(),)), tmp_path, small_settings(1))
    with pytest.raises(CadisError, match="must be client or server, not 'sever'"):
        Algorithm(transforms=(WrongSide(),))


def test_main_metric_that_is_not_computed_is_an_error(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Top(Classification):
        main_metric: ClassVar[str] = "top-2"
        needs_outputs: ClassVar[bool] = True

        def compute_metrics(self, outputs: Tensor, labels: Tensor) -> dict[str, float]:
            return {"top_two": float((outputs.topk(2).indices == labels[:, None]).any(1).sum())}

    with pytest.raises(CadisError, match="main metric of the task classification is top-2"):
        run_rounds(Algorithm(task=Top()), tmp_path, small_settings(1))
