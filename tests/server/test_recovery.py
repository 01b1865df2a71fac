"""Rounds that fail because of one update: it is left out, and the run continues."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from cadis.algorithm import Algorithm, ClientWeights, ServerRound, ServerState
from cadis.algorithm.methods import FedAvg
from cadis.algorithm.server_optimizers import Momentum, ServerOptimizer
from cadis.engine import Engine
from cadis.errors import RunError
from cadis.server.recovery import has_diverged
from cadis.server.validation import split_valid
from cadis.store.checkpoint import Checkpoint, Manifest
from cadis.store.history import HistoryPrefix
from cadis.types import ClientUpdate, TensorState
from lying_clients import Exponential, make_engine, make_liar, run, shift
from support import flat_model, get_model, is_identical, make_server_state, make_update


@dataclass(frozen=True)
class Fragile(ServerOptimizer):
    """A step that overflows if the aggregated model is far from the sent one."""

    name: ClassVar[str] = "fragile"

    def step(
        self, sent: torch.Tensor, aggregated: torch.Tensor, state: TensorState
    ) -> tuple[torch.Tensor, TensorState]:
        velocity = (aggregated - sent).pow(301)
        return aggregated, {**state, "velocity": velocity}


@dataclass(frozen=True)
class Failing(FedAvg):
    """A method that cannot aggregate an update with large parameters."""

    name: ClassVar[str] = "failing"

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> ClientWeights:
        if any(update.model.parameters.abs().max() > 15 for update in updates):
            raise ArithmeticError("too large")
        return super().weigh(server_round, updates, state)


LONG = shift("parameters", 20)
"""An update that is within the limits, but ten times as long as the model."""


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        (Algorithm(FedAvg(), server_optimizer=Fragile()), "its update makes the global model NaN"),
        (Algorithm(Failing()), "the aggregation fails with its update (failing failed in aggr"),
    ],
)
def test_round_is_aggregated_without_the_update_that_makes_it_fail(
    algorithm: Algorithm, reason: str, tmp_path: Path
) -> None:
    lying = replace(algorithm, method=make_liar(algorithm.method, LONG))
    ending, honest = run(lying, tmp_path), run(algorithm, tmp_path)
    (only,) = ending.reasons
    assert only.startswith(reason)
    assert all(len(result.record.participants) == 9 for result in ending.results)
    assert ending.accuracy >= honest.accuracy - 0.1


@dataclass(frozen=True)
class Broken(FedAvg):
    """A method that fails with all updates."""

    name: ClassVar[str] = "broken"

    def weigh(
        self,
        server_round: ServerRound,  # noqa: ARG002
        updates: Sequence[ClientUpdate],
        state: ServerState,  # noqa: ARG002
    ) -> ClientWeights:
        raise ArithmeticError(f"broken with {len(updates)}")


def test_error_that_no_exclusion_avoids_is_the_first_one(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="broken with 10"):
        run(Broken(), tmp_path)


POISON = shift("parameters", 10)
"""An update that is within the limits, but after which all honest clients diverge."""


def test_round_starts_from_the_model_before_a_poisoned_one(tmp_path: Path) -> None:
    method = make_liar(FedAvg(), POISON, first=2, last=2)
    ending = run(method, tmp_path, rounds=4, model=Exponential())
    records = [result.record for result in ending.results]
    assert ending.reasons == ["its update of round 2 made the training of most clients diverge"]
    assert [record.round for record in records if record.rejected] == [3]
    assert [len(record.participants) for record in records] == [10, 10, 9, 10]
    honest = run(FedAvg(), tmp_path, rounds=3, model=Exponential())
    assert ending.accuracy >= honest.accuracy - 0.1  # one round was lost
    assert [result.state.suspects for result in honest.results] == [()] * 3


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_resumed_run_returns_to_the_same_model(stop: int, tmp_path: Path) -> None:
    def make() -> Engine:
        method = make_liar(FedAvg(), POISON, first=2, last=2)
        algorithm = Algorithm(method, server_optimizer=Momentum())
        return make_engine(algorithm, tmp_path, 4, model=Exponential())

    whole = list(make().rounds(make().start))
    assert whole[2].record.rejected
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    (tmp_path / "checkpoint").mkdir()
    stored = checkpoint.save_state(whole[stop - 1].state)
    loaded = checkpoint.load(Manifest(stop, HistoryPrefix(0, ""), "", state=stored))
    rest = list(make().rounds(loaded))
    assert is_identical(get_model(whole[-1]).parameters, get_model(rest[-1]).parameters)
    rejected = [result.record.rejected for result in whole]
    assert [result.record.rejected for result in rest] == rejected[stop:]


def test_single_client_that_did_not_diverge_is_not_the_next_model() -> None:
    """If there is an earlier model, half of the clients are enough to return to it."""
    updates = [make_update(n, 5, flat_model(inf if n < 3 else 0.5, 0.0)) for n in range(4)]
    _, rejected = split_valid(updates, FedAvg(), make_server_state(flat_model(0.0, 0.0)))
    assert len(rejected) == 3
    assert has_diverged(1, rejected, can_return=False)
    assert not has_diverged(1, rejected[:1], can_return=False)  # one of two
    assert has_diverged(1, rejected[:1], can_return=True)
    assert not has_diverged(2, rejected[:1], can_return=True)
    assert not has_diverged(2, rejected, can_return=False)
