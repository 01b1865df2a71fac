"""The round itself: what the server makes of parts that do odd things, and of odd answers."""

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
    LocalResult,
    ServerRound,
    ServerState,
    Weighing,
)
from cadis.algorithm.methods import FedAvg, FedFA
from cadis.algorithm.samplers import SamplerRound, Uniform
from cadis.algorithm.tasks import Classification
from cadis.algorithm.transforms import NormBound, TransformRound
from cadis.errors import CadisError, RunError
from cadis.server import check_answer, limited_counts
from cadis.server.validation import split_valid
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState
from support import model_after, run_rounds, same, small_settings, state_of


@dataclass(frozen=True)
class Odd(Uniform):
    """Chooses what it is told to."""

    chosen: tuple[ClientId, ...] = ()

    def choose(self, server_round: SamplerRound, memory: TensorState) -> Sequence[ClientId]:  # noqa: ARG002
        return self.chosen


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ((), "chose 0 clients; it must choose 1 to 3"),
        ((0, 0), "chose a client twice"),
        ((0, 9), "chose 9, which is no client that is there"),
        ((0, 1, 2, 3), "chose 4 clients; it must choose 1 to 3"),
    ],
)
def test_a_sampler_that_chooses_wrongly_is_told(
    chosen: tuple[ClientId, ...], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(CadisError, match=f"sampler uniform {problem}"):
        run_rounds(Algorithm(FedAvg(), sampler=Odd(chosen)), tmp_path)


def test_a_sampler_may_choose_fewer(tmp_path: Path) -> None:
    results = run_rounds(Algorithm(FedAvg(), sampler=Odd((3, 1))), tmp_path)
    assert [result.record.participants for result in results] == [[3, 1]] * 3


@dataclass(frozen=True)
class Hoarder(BaseMethod):
    """Clients send ever more; the server keeps what it got as it is, and sends it all back."""

    name: ClassVar[str] = "hoarder"

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        model = super().broadcast(server_round, state, client)
        return Message(model.models, state.memory)

    def finish(self, training: LocalResult, received: Message, memory: TensorState) -> ClientOutput:
        number = len(received.tensors)
        sent = {f"copy-{n}": training.trained * (n + 1) for n in range(3 * (number + 1))}
        return ClientOutput(memory, sent)

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        weighing = super().weigh(server_round, updates, state)
        return replace(weighing, memory=updates[0].message.tensors)


def test_messages_may_grow_and_what_is_kept_is_not_overwritten(tmp_path: Path) -> None:
    alone, together = (
        run_rounds(Hoarder(), tmp_path, small_settings(3, workers=workers)) for workers in (1, 2)
    )
    sizes = [len(result.state.server.memory) for result in together]
    assert sizes == [3, 12, 39]
    for result in together:  # of a round long gone, too
        memory = result.state.server.memory
        assert torch.equal(memory["copy-1"], 2 * memory["copy-0"])
    for one, other in zip(alone, together, strict=True):
        assert same(model_after(one).parameters, model_after(other).parameters)
        mine, theirs = one.state.server.memory, other.state.server.memory
        assert all(same(mine[name], tensor) for name, tensor in theirs.items())
    for first, second in pairwise(together):
        assert not torch.equal(
            first.state.server.memory["copy-0"], second.state.server.memory["copy-0"]
        )


def model(parameters: Tensor) -> ModelState:
    return ModelState(parameters, torch.zeros(0), torch.zeros(0).long())


STATE = state_of(model(torch.zeros(3)))
GOOD = Message({"model": model(torch.ones(3))}, scalars={"received_accuracy": 0.5})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ClientUpdate(1, 5, GOOD), None),
        (ClientUpdate(1, 0, GOOD), "it says that it has 0 samples"),
        (ClientUpdate(1, 5, replace(GOOD, models={})), "it sent no model"),
        (ClientUpdate(1, 5, Message({"x": GOOD.model})), "it sent a model 'x', which there is not"),
        (
            ClientUpdate(1, 5, Message({"model": model(torch.ones(4))})),
            "its model has another size",
        ),
        (
            ClientUpdate(1, 5, replace(GOOD, scalars={})),
            "it did not send received_accuracy, which fed",
        ),
        (
            ClientUpdate(1, 5, replace(GOOD, models={"model": model(torch.ones(3) / 0)})),
            "its model is infinite or not a number",
        ),
        (
            ClientUpdate(1, 5, replace(GOOD, tensors={"extra": torch.ones(2) / 0})),
            "its extra is infinite or not a number",
        ),
        (
            ClientUpdate(1, 5, replace(GOOD, scalars={"received_accuracy": float("nan")})),
            "its received_accuracy is infinite or not a number",
        ),
    ],
)
def test_answers_that_cannot_be_used(answer: ClientUpdate, reason: str | None) -> None:
    found = check_answer(answer, FedFA(), STATE)
    assert (found is None) if reason is None else str(found).startswith(reason)


def test_the_norm_bound_is_applied_on_the_server(tmp_path: Path) -> None:
    bounded = Algorithm(FedAvg(), transforms=(NormBound(max_norm=0.01),))
    first, second = run_rounds(bounded, tmp_path, small_settings(rounds=2))
    moved = model_after(second).parameters - model_after(first).parameters
    assert 0 < float(moved.norm()) <= 0.01 * (1 + 1e-5)


@pytest.mark.parametrize(
    ("counts", "limit", "expected"),
    [([10, 20, 90], 2, [10, 20, 40]), ([1, 9], 3, [1, 3]), ([5, 900], None, [5, 900]), ([], 2, [])],
)
def test_counts_are_limited_by_their_median(
    counts: list[int], limit: float | None, expected: list[int]
) -> None:
    assert limited_counts(counts, limit) == expected


@dataclass(frozen=True)
class Wrong(BaseMethod):
    """Does one thing wrong."""

    name: ClassVar[str] = "wrong"
    deed: str = ""

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:
        state = super().init(model, generator)
        return ServerState({}) if self.deed == "no model" else state

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        message = super().broadcast(server_round, state, client)
        return state.models if self.deed == "no message" else message  # type: ignore[return-value]

    def model_name_for(self, client: ClientId, state: ServerState) -> str:
        return "mine" if self.deed == "no such model" else super().model_name_for(client, state)

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        if self.deed == "raises":
            raise KeyError("control")
        weighing = super().weigh(server_round, updates, state)
        changes: dict[str, dict[str, object]] = {
            "memory": {"memory": {"rounds": 3}},
            "report": {"report": {"loss": 0.5}},
            "weights": {"weights": -weighing.weights},
            "too few": {"weights": weighing.weights[:1]},
        }
        return replace(weighing, **changes.get(self.deed, {}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("deed", "sentence"),
    [
        ("no model", "wrong.init must return a ServerState with at least one model"),
        ("no message", "wrong.broadcast must return a Message with at least one model"),
        ("no such model", "wrong failed in broadcast: KeyError: 'mine'"),
        ("raises", "wrong failed in aggregate: KeyError: 'control'"),
        ("memory", "The memory of wrong must be named tensors, but 'rounds' is a int"),
        ("report", "The report of wrong must be named tensors, but 'loss' is a float"),
        ("weights", "are no shares: they must not be negative"),
        ("too few", "1 weights cannot average 3 models"),
    ],
)
def test_what_a_method_does_wrong_is_a_sentence(deed: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises((CadisError, RunError), match=sentence):
        run_rounds(Wrong(deed), tmp_path)


def test_an_answer_unlike_the_others_is_left_out() -> None:
    def answer(client: int, extra: Tensor) -> ClientUpdate:
        return ClientUpdate(client, 5, replace(GOOD, tensors={"extra": extra}))

    answers = [answer(0, torch.ones(3)), answer(1, torch.ones(2)), answer(2, torch.zeros(3))]
    answers.append(answer(3, torch.ones(3).double()))
    good, rejected = split_valid(answers, FedFA(), STATE)
    assert [answer.client_id for answer in good] == [0, 2]
    assert [r.client for r in rejected] == [1, 3]
    assert rejected[0].reason == "its tensors are unlike those of others"


@dataclass(frozen=True)
class Squeezed(NormBound):
    """Changes the shape of what was sent."""

    name: ClassVar[str] = "squeezed"

    def apply(self, update: Message, server_round: TransformRound) -> Message:  # noqa: ARG002
        return Message({"model": replace(update.model, parameters=update.model.parameters[:3])})


@dataclass(frozen=True)
class Nowhere(NormBound):
    """Is applied nowhere."""

    side: ClassVar[Literal["client", "server"]] = "sever"  # type: ignore[assignment]


def test_transforms_that_do_harm_are_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"After squeezed, the update of . is wrong: its model has"):
        run_rounds(Algorithm(FedAvg(), transforms=(Squeezed(),)), tmp_path, small_settings(1))
    with pytest.raises(CadisError, match="must be client or server, not 'sever'"):
        Algorithm(transforms=(Nowhere(),))


def test_a_headline_that_nobody_measures_is_told(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Top(Classification):
        headline: ClassVar[str] = "top-2"
        needs_outputs: ClassVar[bool] = True

        def measures(self, outputs: Tensor, labels: Tensor) -> dict[str, float]:
            return {"top_two": float((outputs.topk(2).indices == labels[:, None]).any(1).sum())}

    with pytest.raises(CadisError, match="headline of classification is top-2, none of: top_two"):
        run_rounds(Algorithm(task=Top()), tmp_path, small_settings(1))
