"""Speeds of clients, and the simulated clock of a run."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import cadis
from cadis.algorithm import Aggregation, BaseMethod, ServerRound, ServerState
from cadis.algorithm.methods import FedAT, FedAvg, SingleSet
from cadis.engine.speeds import resolve_speeds
from cadis.errors import CadisError
from cadis.store import RunFolder
from cadis.types import ClientId, ClientUpdate
from support import (
    get_model,
    is_identical,
    run_rounds,
    run_small,
    small_federation,
    small_settings,
)

SIZES = [9, 11, 13, 15, 17]
"""Samples of the clients of the small federation, which train for two epochs."""


def test_speeds_are_log_uniform_and_depend_on_the_seed() -> None:
    ids = list(range(4000))
    drawn = resolve_speeds("10:1000", ids, seed=3)
    assert drawn.dtype == torch.float64
    assert 10 <= drawn.min() < 11
    assert 900 < drawn.max() <= 1000
    assert (drawn < 100).double().mean().item() == pytest.approx(0.5, abs=0.03)  # sqrt(10 * 1000)
    assert drawn.log().mean().item() == pytest.approx((log(10) + log(1000)) / 2, abs=0.07)
    assert torch.equal(drawn, resolve_speeds("10:1000", ids, seed=3))
    assert not torch.equal(drawn, resolve_speeds("10:1000", ids, seed=4))
    assert resolve_speeds("5:5", [1, 2], 0).tolist() == pytest.approx([5, 5])
    assert resolve_speeds("", [1, 2], 0).tolist() == [1, 1]


def test_round_lasts_as_long_as_its_slowest_participant(tmp_path: Path) -> None:
    speeds = (3.0, 22.0, 1.0, 60.0, 17.0)
    results = run_rounds(FedAvg(), tmp_path, replace(small_settings(4), speeds=speeds))
    clock = 0.0
    for result in results:
        clock += max(2 * SIZES[n] / speeds[n] for n in map(int, result.record.participants))
        assert result.record.clock == clock
        assert result.state.clock == clock


def test_default_speed_is_1_and_speeds_do_not_change_models(
    tmp_path: Path,
) -> None:
    plain = run_rounds(FedAvg(), tmp_path)
    fast = run_rounds(FedAvg(), tmp_path, replace(small_settings(), speeds="10:1000"))
    assert plain[0].record.clock == max(2 * SIZES[int(n)] for n in plain[0].record.participants)
    for one, other in zip(plain, fast, strict=True):
        assert is_identical(get_model(one).parameters, get_model(other).parameters)
        assert one.record.clock != other.record.clock


def test_round_waits_for_a_rejected_client() -> None:
    federation = small_federation()
    broken = federation.clients[4].inputs.clone().fill_(1e30)  # its model becomes infinite
    clients = [*federation.clients[:4], replace(federation.clients[4], inputs=broken)]
    options = {"method": "fedavg", "epochs": 2, "lr": 0.1, "speeds": [1, 1, 1, 1, 0.5]}
    with pytest.warns(UserWarning, match="Round 1: the update of client 4 was rejected"):
        result = run_small(clients=clients, rounds=1, workers=1, **options)
    (record,) = result.history
    assert [rejection.client for rejection in record.rejected] == [4]
    assert record.clock == 2 * 17 / 0.5


def test_pooled_training_has_no_clock(tmp_path: Path) -> None:
    results = run_rounds(SingleSet(), tmp_path, replace(small_settings(), speeds="1:2"))
    assert [result.record.clock for result in results] == [None] * 3


@dataclass(frozen=True)
class FixedClock(BaseMethod):
    """Returns given clients as eligible, and a given clock."""

    name: ClassVar[str] = "fixed"
    eligible: tuple[ClientId, ...] = (3, 1)
    clock: float = 7.0

    def eligible_clients(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Sequence[ClientId]:
        assert list(clients) == list(server_round.clients) == [0, 1, 2, 3, 4]
        assert server_round.estimate_seconds([4, 0]).tolist() == [34, 18]
        assert state.models
        return self.eligible

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        return replace(super().aggregate(server_round, updates, state), clock=self.clock)


def test_method_decides_eligible_clients_and_the_clock(tmp_path: Path) -> None:
    results = run_rounds(FixedClock(), tmp_path)  # per_round is 3, but two clients are eligible
    assert [sorted(map(int, r.record.participants)) for r in results] == [[1, 3]] * 3
    assert [result.record.clock for result in results] == [7.0] * 3


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (FixedClock(eligible=()), "fixed.eligible_clients returned no clients"),
        (
            FixedClock(eligible=(1, 9)),
            "fixed.eligible_clients returned 9, which is not an available client",
        ),
        (
            FixedClock(eligible=(1, 1)),
            "fixed.eligible_clients returned a client twice; it must name each client once",
        ),
        (
            FixedClock(clock=-1.0),
            "fixed.aggregate returned the clock -1.0, but the round began at 0",
        ),
        (FixedClock(clock=float("nan")), "fixed.aggregate returned the clock nan"),
    ],
)
def test_invalid_clients_or_clock_of_a_method_is_an_error(
    method: FixedClock, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(CadisError, match=sentence):
        run_rounds(method, tmp_path)


def run(out: Path | None, **options: Any) -> cadis.RunResult:
    defaults = {
        "method": "fedat",
        "rounds": 6,
        "per_round": 2,
        "epochs": 1,
        "seed": 7,
        "workers": 1,
    }
    return run_small(**defaults | options, out=out)


def test_speeds_as_list_as_dict_and_in_a_file_are_the_same(tmp_path: Path) -> None:
    speeds = [30.0, 2.0, 9.0, 4.0, 1.5]
    path = tmp_path / "speeds.json"
    path.write_text(json.dumps({str(n): s for n, s in enumerate(speeds)} | {"other": 1}))
    from_list = run(None, speeds=speeds)
    for value in (dict(enumerate(speeds)), str(path)):
        other = run(None, speeds=value)
        assert [r.clock for r in other.history] == [r.clock for r in from_list.history]
    assert from_list.history[0].clock == 13 / 9  # the fastest two clients take 9 / 30 and 13 / 9


def test_resumed_run_continues_its_clock(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", speeds="1:50")
    run(tmp_path / "part", speeds="1:50", rounds=3)
    again = run(tmp_path / "part", speeds="1:50", resume=True)
    expected, records = (
        [(r.clock, r.participants, r.accuracy) for r in result.history] for result in (whole, again)
    )
    assert records == expected
    stored = RunFolder(tmp_path / "part").read_history()
    assert [record.clock for record in stored] == [r.clock for r in whole.history]
    with pytest.raises(CadisError, match="has speeds = 1:50, not 1:60"):
        run(tmp_path / "part", speeds="1:60", resume=True)


def test_number_of_workers_does_not_change_the_clock(tmp_path: Path) -> None:
    one, two = (
        run_rounds(FedAT(), tmp_path, replace(small_settings(6, workers=n), speeds="1:50"))
        for n in (1, 2)
    )
    for first, second in zip(one, two, strict=True):
        assert first.record.clock == second.record.clock
        assert first.record.participants == second.record.participants
        assert is_identical(get_model(first).parameters, get_model(second).parameters)


@pytest.mark.parametrize(
    ("speeds", "sentence"),
    [
        ("10", "speeds must be LOW:HIGH in samples per second, such as 10:1000, or a file"),
        ("9:3", "not '9:3'"),
        ("0:3", "not '0:3'"),
        ("1:inf", "not '1:inf'"),
        ("1:2:3", "not '1:2:3'"),
        ("nowhere.json", "The file nowhere.json cannot be read"),
        ([1, 2], "2 speeds are given for 5 clients; give one per client"),
        ({0: 1.0}, "The argument speeds has no speed for client 1; give one per client"),
        (dict.fromkeys(range(5), -1), "The speed of client 0 must be a positive number"),
        (dict.fromkeys(range(5), "fast"), "a positive number of samples per second, not 'fast'"),
        (["a"] * 5, "speeds should be a valid"),
        (3, "speeds should be"),
    ],
)
def test_invalid_speeds_are_an_error(speeds: Any, sentence: str) -> None:
    with pytest.raises(CadisError) as error:
        run(None, speeds=speeds)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
