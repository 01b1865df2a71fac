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
from cadis.engine.speeds import client_speeds
from cadis.errors import CadisError
from cadis.store import RunFolder
from cadis.types import ClientId, ClientUpdate
from support import (
    model_after,
    run_rounds,
    run_small,
    same,
    small_federation,
    small_settings,
)

SIZES = [9, 11, 13, 15, 17]
"""Samples of the clients of the small federation, who train for two epochs."""


def test_speeds_are_drawn_log_uniformly_by_the_seed() -> None:
    ids = list(range(4000))
    drawn = client_speeds("10:1000", ids, seed=3)
    assert drawn.dtype == torch.float64
    assert 10 <= drawn.min() < 11
    assert 900 < drawn.max() <= 1000
    assert (drawn < 100).double().mean().item() == pytest.approx(0.5, abs=0.03)  # sqrt(10 * 1000)
    assert drawn.log().mean().item() == pytest.approx((log(10) + log(1000)) / 2, abs=0.07)
    assert torch.equal(drawn, client_speeds("10:1000", ids, seed=3))
    assert not torch.equal(drawn, client_speeds("10:1000", ids, seed=4))
    assert client_speeds("5:5", [1, 2], 0).tolist() == pytest.approx([5, 5])
    assert client_speeds("", [1, 2], 0).tolist() == [1, 1]


def test_a_round_lasts_as_long_as_its_slowest_participant(tmp_path: Path) -> None:
    speeds = (3.0, 22.0, 1.0, 60.0, 17.0)
    results = run_rounds(FedAvg(), tmp_path, replace(small_settings(4), speeds=speeds))
    clock = 0.0
    for result in results:
        clock += max(2 * SIZES[n] / speeds[n] for n in map(int, result.record.participants))
        assert result.record.clock == clock
        assert result.state.clock == clock


def test_without_speeds_a_sample_takes_one_unit_and_no_speed_changes_a_model(
    tmp_path: Path,
) -> None:
    plain = run_rounds(FedAvg(), tmp_path)
    fast = run_rounds(FedAvg(), tmp_path, replace(small_settings(), speeds="10:1000"))
    assert plain[0].record.clock == max(2 * SIZES[int(n)] for n in plain[0].record.participants)
    for one, other in zip(plain, fast, strict=True):
        assert same(model_after(one).parameters, model_after(other).parameters)
        assert one.record.clock != other.record.clock


def test_whoever_is_rejected_is_waited_for() -> None:
    federation = small_federation()
    broken = federation.clients[4].inputs.clone().fill_(1e30)  # its model becomes infinite
    clients = [*federation.clients[:4], replace(federation.clients[4], inputs=broken)]
    options = {"method": "fedavg", "epochs": 2, "lr": 0.1, "speeds": [1, 1, 1, 1, 0.5]}
    with pytest.warns(UserWarning, match="Round 1 is without client 4"):
        result = run_small(clients=clients, rounds=1, workers=1, **options)
    (record,) = result.history
    assert [rejection.client for rejection in record.rejected] == [4]
    assert record.clock == 2 * 17 / 0.5


def test_whoever_has_all_data_has_no_clock(tmp_path: Path) -> None:
    results = run_rounds(SingleSet(), tmp_path, replace(small_settings(), speeds="1:2"))
    assert [result.record.clock for result in results] == [None] * 3


@dataclass(frozen=True)
class Odd(BaseMethod):
    """Says odd things of who may take part, and when rounds end."""

    name: ClassVar[str] = "odd"
    named: tuple[ClientId, ...] = (3, 1)
    ended: float = 7.0

    def eligible_clients(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Sequence[ClientId]:
        assert list(clients) == list(server_round.clients) == [0, 1, 2, 3, 4]
        assert server_round.seconds_of([4, 0]).tolist() == [34, 18]
        assert state.models
        return self.named

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        return replace(super().aggregate(server_round, updates, state), clock=self.ended)


def test_a_method_says_who_may_take_part_and_when_a_round_ended(tmp_path: Path) -> None:
    results = run_rounds(Odd(), tmp_path)  # three are wanted, but two may
    assert [sorted(map(int, r.record.participants)) for r in results] == [[1, 3]] * 3
    assert [result.record.clock for result in results] == [7.0] * 3


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (Odd(named=()), "odd.eligible_clients names nobody"),
        (Odd(named=(1, 9)), "odd.eligible_clients names 9, which is no client that is there"),
        (Odd(named=(1, 1)), "odd.eligible_clients names a client twice; name each once"),
        (Odd(ended=-1.0), "odd.aggregate says that the round ended at -1.0, but it began at 0"),
        (Odd(ended=float("nan")), "odd.aggregate says that the round ended at nan"),
    ],
)
def test_a_method_that_says_it_wrongly_is_told(method: Odd, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(CadisError, match=sentence):
        run_rounds(method, tmp_path)


def run(out: Path | None, **options: Any) -> cadis.RunResult:
    given = {"method": "fedat", "rounds": 6, "per_round": 2, "epochs": 1, "seed": 7, "workers": 1}
    return run_small(**given | options, out=out)


def test_speeds_by_client_in_order_or_in_a_file_are_the_same(tmp_path: Path) -> None:
    speeds = [30.0, 2.0, 9.0, 4.0, 1.5]
    path = tmp_path / "speeds.json"
    path.write_text(json.dumps({str(n): s for n, s in enumerate(speeds)} | {"other": 1}))
    listed = run(None, speeds=speeds)
    for given in (dict(enumerate(speeds)), str(path)):
        other = run(None, speeds=given)
        assert [r.clock for r in other.history] == [r.clock for r in listed.history]
    assert listed.history[0].clock == 13 / 9  # of the fastest two, who take 9 / 30 and 13 / 9


def test_a_stopped_run_goes_on_with_its_clock(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", speeds="1:50")
    run(tmp_path / "part", speeds="1:50", rounds=3)
    again = run(tmp_path / "part", speeds="1:50", resume=True)
    told = [[(r.clock, r.participants, r.accuracy) for r in x.history] for x in (whole, again)]
    assert told[0] == told[1]
    stored = RunFolder(tmp_path / "part").read_history()
    assert [record.clock for record in stored] == [r.clock for r in whole.history]
    with pytest.raises(CadisError, match="has speeds = 1:50, not 1:60"):
        run(tmp_path / "part", speeds="1:60", resume=True)


def test_any_number_of_workers_gives_the_same_events(tmp_path: Path) -> None:
    one, two = (
        run_rounds(FedAT(), tmp_path, replace(small_settings(6, workers=n), speeds="1:50"))
        for n in (1, 2)
    )
    for first, second in zip(one, two, strict=True):
        assert first.record.clock == second.record.clock
        assert first.record.participants == second.record.participants
        assert same(model_after(first).parameters, model_after(second).parameters)


@pytest.mark.parametrize(
    ("speeds", "sentence"),
    [
        ("10", "speeds should be LOW:HIGH in samples a second, such as 10:1000, or a file"),
        ("9:3", "not '9:3'"),
        ("0:3", "not '0:3'"),
        ("1:inf", "not '1:inf'"),
        ("1:2:3", "not '1:2:3'"),
        ("nowhere.json", "The file nowhere.json cannot be read"),
        ([1, 2], "2 speeds are given for 5 clients; give one for each"),
        ({0: 1.0}, "What is given as speeds has no speed for client 1; give one for each"),
        (dict.fromkeys(range(5), -1), "The speed of client 0 should be a positive number"),
        (dict.fromkeys(range(5), "fast"), "a positive number of samples a second, not 'fast'"),
        (["a"] * 5, "speeds should be a valid"),
        (3, "speeds should be"),
    ],
)
def test_wrong_speeds_are_one_sentence(speeds: Any, sentence: str) -> None:
    with pytest.raises(CadisError) as error:
        run(None, speeds=speeds)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
