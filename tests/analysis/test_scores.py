from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from cadis.algorithm.methods import CADIS, FedAvg, SingleSet
from cadis.analysis import RunData, Scores
from cadis.server import RoundRecord
from fabricated import with_measures, write_run


def untested(record: RoundRecord) -> RoundRecord:
    """A round of which nobody knows how good its model is."""
    return replace(record, accuracy=None, loss=None, class_accuracy=[])


def test_measures_by_hand(tmp_path: Path) -> None:
    run_data = RunData.read(write_run(tmp_path / "run", CADIS(), rounds=12))
    accuracies = [record.accuracy or 0.0 for record in run_data.history]
    scores = Scores.of(run_data)
    assert scores.best == max(accuracies)
    assert scores.last == accuracies[11]
    assert scores.ten_rounds == pytest.approx(sum(accuracies[2:]) / 10)
    assert scores.amplitude == max(accuracies[2:]) - min(accuracies[2:])
    by_class = run_data.history[-1].class_accuracy
    assert scores.rare == pytest.approx(fmean(a for a in by_class[3:] if a is not None))
    told = run_data.history[9].client_accuracy or []  # rounds 5 and 10 have it
    clients = [accuracy for accuracy in told if accuracy is not None]
    assert scores.client_mean == pytest.approx(fmean(clients))
    assert scores.client_deviation == pytest.approx(pstdev(clients))
    assert scores.client_worst == min(clients)
    assert scores.agreement == 1  # similarities were made up so
    assert scores.server_seconds == pytest.approx(0.001)


def test_samples_per_second_by_hand(tmp_path: Path) -> None:
    run_data = RunData.read(write_run(tmp_path / "run", FedAvg(), rounds=3))
    sizes = {client["id"]: sum(client["samples"]) for client in run_data.federation["clients"]}
    seen = sum(sizes[client] for record in run_data.history for client in record.participants)
    assert Scores.of(run_data).samples_per_second == pytest.approx(2 * seen / (3 * 0.5))


def test_who_pools_clients_trains_on_all_their_data(tmp_path: Path) -> None:
    run_data = RunData.read(write_run(tmp_path / "run", SingleSet(), rounds=2))
    pooled = [replace(record, participants=["everyone"]) for record in run_data.history]
    everything = sum(sum(client["samples"]) for client in run_data.federation["clients"])
    speed = Scores.of(replace(run_data, history=pooled)).samples_per_second
    assert speed == pytest.approx(2 * 2 * everything / (2 * 0.5))


def test_measures_of_the_task_are_those_of_the_last_test(tmp_path: Path) -> None:
    run_data = RunData.read(write_run(tmp_path / "run", FedAvg(), rounds=3, further=with_measures))
    accuracy = run_data.history[-1].accuracy or 0.0
    assert Scores.of(run_data).measures == {
        "auc": 1 - accuracy / 2,
        "balanced_accuracy": accuracy**2,
    }
    untold = replace(run_data.history[-1], measures={})
    earlier = replace(run_data, history=[*run_data.history[:-1], untold])
    assert Scores.of(earlier).measures == run_data.history[1].measures
    unknown = replace(run_data.history[-1], measures={"auc": None})
    assert Scores.of(replace(run_data, history=[unknown])).measures == {}


def test_first_round_of_a_target(tmp_path: Path) -> None:
    scores = Scores.of(RunData.read(write_run(tmp_path / "run", FedAvg(), rounds=12)))
    reached = [number for number, value in scores.tested if value >= 0.5]
    assert scores.rounds_to(0.5) == reached[0]
    assert scores.rounds_to(0.999) is None


def test_what_was_not_measured_is_none(tmp_path: Path) -> None:
    run_data = RunData.read(write_run(tmp_path / "run", FedAvg(), rounds=3))
    nothing = [replace(untested(record), client_accuracy=None) for record in run_data.history]
    scores = Scores.of(replace(run_data, history=nothing))
    assert (scores.best, scores.last, scores.ten_rounds, scores.amplitude) == (None,) * 4
    assert (scores.client_mean, scores.client_worst, scores.agreement) == (None,) * 3
    assert scores.rounds_to(0.1) is None


def test_ten_rounds_are_rounds_and_not_tests(tmp_path: Path) -> None:
    """With a test every fourth round, three of rounds 3 to 12 have one: 4, 8 and 12."""
    run_data = RunData.read(write_run(tmp_path / "run", FedAvg(), rounds=14))
    values = [record.accuracy or 0.0 for record in run_data.history]
    tested = [r if r.round % 4 == 0 else untested(r) for r in run_data.history]
    scores = Scores.of(replace(run_data, history=tested))
    assert scores.tested == ((4, values[3]), (8, values[7]), (12, values[11]))
    assert scores.ten_rounds == pytest.approx((values[3] + values[7] + values[11]) / 3)
    later = Scores.of(replace(run_data, history=[*tested[:3], untested(tested[3]), *tested[4:]]))
    assert later.ten_rounds == pytest.approx((values[7] + values[11]) / 2)
    assert later.amplitude == pytest.approx(abs(values[7] - values[11]))
    assert later.last == values[11]
    assert later.rounds_to(values[7]) in (8, 12)


def test_clients_that_were_not_tested_count_for_nothing(tmp_path: Path) -> None:
    run_data = RunData.read(write_run(tmp_path / "run", FedAvg(), rounds=5))
    some: list[float | None] = [None] * 12
    some[3], some[7] = 0.25, 0.75
    history = [*run_data.history[:-1], replace(run_data.history[-1], client_accuracy=some)]
    sampled = replace(run_data, history=history)
    scores = Scores.of(sampled)
    assert (scores.client_mean, scores.client_deviation, scores.client_worst) == (0.5, 0.25, 0.25)
    assert list(sampled.client_accuracy[5].values()) == [0.25, 0.75]
    assert sampled.clients_tested == "2 of 12 clients"
    assert run_data.clients_tested == ""
