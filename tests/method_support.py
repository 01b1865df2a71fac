"""Helpers for the tests of methods: server rounds, penalties, and runs with clusters."""

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
from cadis.rng import derive_generator
from cadis.server import RoundResult
from cadis.types import TensorState
from support import flat_model, is_identical, planted_federation, small_model, small_settings


def make_server_round(number: int = 1, head: tuple[slice, ...] = (), **known: Any) -> ServerRound:
    """Return a round of nine clients, or with other options."""
    options: dict[str, Any] = {"num_clients": 9, "generator": derive_generator(0), **known}
    return ServerRound(number, head, **options)


def get_next_state(state: ServerState, aggregation: Aggregation) -> ServerState:
    """Return the state of the server after an aggregation."""
    return ServerState({**state.models, **aggregation.models}, aggregation.tensors)


def compute_penalty(method: BaseMethod, step: Step) -> Tensor:
    """Return the penalty of a method that has one."""
    penalty = method.penalty(step)
    assert penalty is not None
    return penalty


def make_local_result(trained: Tensor, received: Tensor, steps: int = 1) -> LocalResult:
    """Return the result of plain SGD steps at a learning rate of 0.1."""
    model = flat_model(*trained.tolist())
    return LocalResult(model, trained, received, steps, lr=0.1, loss=0.0, effective_steps=steps)


def run_with_clusters(
    method: BaseMethod | Algorithm,
    folder: Path,
    rounds: int,
    federation: Federation | None = None,
    workers: int = 1,
) -> list[RoundResult]:
    """Run rounds of four participants; the default federation is ``planted_federation``."""
    algorithm = method if isinstance(method, Algorithm) else Algorithm(method)
    settings = small_settings(rounds, workers, per_round=4)
    engine = Engine(small_model(), federation or planted_federation(), algorithm, settings, folder)
    return list(engine.rounds(engine.start))


def make_similarity(similarity: float) -> Tensor:
    """Return the similarity matrix of two clients, (2, 2)."""
    return torch.tensor([[1.0, similarity], [similarity, 1.0]])


def are_equal_tensors(first: TensorState, second: TensorState) -> bool:
    """Return whether two states have the same names and bitwise equal tensors."""
    return list(first) == list(second) and all(map(is_identical, first.values(), second.values()))
