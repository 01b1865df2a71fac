"""What the tests of methods share: a round on the server, a penalty, and runs with clusters."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cadis.algorithm import (
    Aggregation,
    Algorithm,
    BaseMethod,
    LocalResult,
    ServerRound,
    ServerState,
    Step,
)
from cadis.engine import Engine, Federation
from cadis.rng import generator_for
from cadis.server import RoundResult
from cadis.types import TensorState
from support import flat_model, planted, same, small_model, small_settings


def server_round(number: int = 1, head: tuple[slice, ...] = (), **known: Any) -> ServerRound:
    """A round of nine clients, unless told."""
    options: dict[str, Any] = {"num_clients": 9, "generator": generator_for(0), **known}
    return ServerRound(number, head, **options)


def state_after(state: ServerState, made: Aggregation) -> ServerState:
    """What the next round begins with."""
    return ServerState({**state.models, **made.models}, made.memory)


def penalty_of(method: BaseMethod, step: Step) -> Tensor:
    """The penalty of a method that has one."""
    penalty = method.penalty(step)
    assert penalty is not None
    return penalty


def training_of(trained: Tensor, received: Tensor, steps: int = 1) -> LocalResult:
    """Plain steps from received to trained parameters, at a learning rate of 0.1."""
    model = flat_model(*trained.tolist())
    return LocalResult(model, trained, received, steps, lr=0.1, loss=0.0, effective_steps=steps)


def run_clusters(
    method: BaseMethod | Algorithm,
    folder: Path,
    rounds: int,
    federation: Federation | None = None,
    workers: int = 1,
) -> list[RoundResult]:
    """Rounds of four clients of a federation with clusters; that of ``planted``, unless told."""
    algorithm = method if isinstance(method, Algorithm) else Algorithm(method)
    settings = small_settings(rounds, workers, per_round=4)
    engine = Engine(small_model(), federation or planted(), algorithm, settings, folder)
    return list(engine.rounds(engine.start))


def pair_of(similarity: float) -> Tensor:
    """The similarities of two clients."""
    return torch.tensor([[1.0, similarity], [similarity, 1.0]])


def same_tensors(first: TensorState, second: TensorState) -> bool:
    """The same names, and tensors that are the same bit for bit."""
    return list(first) == list(second) and all(map(same, first.values(), second.values()))
