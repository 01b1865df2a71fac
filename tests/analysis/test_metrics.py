from dataclasses import replace
from math import nan
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pytest

from cadis.algorithm.methods import CADIS, FedAvg, SingleSet
from cadis.analysis import RunData, Scores, make_time_axis, resample_at_times
from cadis.server import RoundRecord
from fabricated import add_metrics, read_run


def drop_test(record: RoundRecord) -> RoundRecord:
    """Return the record of a round whose model was not tested."""
    return replace(record, accuracy=None, loss=None, class_accuracy=[])


def test_scores_by_hand(tmp_path: Path) -> None:
    run_data = read_run(tmp_path / "run", CADIS(), rounds=12)
    accuracies = [record.accuracy or 0.0 for record in run_data.history]
    scores = Scores.from_run(run_data)
    assert scores.best == max(accuracies)
    assert scores.last == accuracies[11]
    assert scores.ten_rounds == pytest.approx(sum(accuracies[2:]) / 10)
    assert scores.amplitude == max(accuracies[2:]) - min(accuracies[2:])
    by_class = run_data.history[-1].class_accuracy
    assert scores.rare == pytest.approx(fmean(a for a in by_class[3:] if a is not None))
    last_test = run_data.history[9].client_accuracy or []  # clients are tested every 5 rounds
    clients = [value for value in last_test if value is not None]
    assert scores.client_mean == pytest.approx(fmean(clients))
    assert scores.client_deviation == pytest.approx(pstdev(clients))
    assert scores.client_worst == min(clients)
    assert scores.agreement == 1
    assert scores.server_seconds == pytest.approx(0.001)


def test_samples_per_second_by_hand(tmp_path: Path) -> None:
    run_data = read_run(tmp_path / "run", FedAvg(), rounds=3)
    sizes = {client["id"]: sum(client["samples"]) for client in run_data.federation["clients"]}
    seen = sum(sizes[client] for record in run_data.history for client in record.participants)
    assert Scores.from_run(run_data).samples_per_second == pytest.approx(2 * seen / (3 * 0.5))


def test_a_method_that_pools_clients_trains_on_all_their_data(tmp_path: Path) -> None:
    run_data = read_run(tmp_path / "run", SingleSet(), rounds=2)
    pooled = [replace(record, participants=["everyone"]) for record in run_data.history]
    everything = sum(sum(client["samples"]) for client in run_data.federation["clients"])
    speed = Scores.from_run(replace(run_data, history=pooled)).samples_per_second
    assert speed == pytest.approx(2 * 2 * everything / (2 * 0.5))


def test_task_metrics_are_those_of_the_last_test(tmp_path: Path) -> None:
    run_data = read_run(tmp_path / "run", FedAvg(), rounds=3, change_record=add_metrics)
    accuracy = run_data.history[-1].accuracy or 0.0
    expected = {"auc": 1 - accuracy / 2, "balanced_accuracy": accuracy**2}
    assert Scores.from_run(run_data).task_metrics == expected
    without_metrics = replace(run_data.history[-1], metrics={})
    earlier = replace(run_data, history=[*run_data.history[:-1], without_metrics])
    assert Scores.from_run(earlier).task_metrics == run_data.history[1].metrics
    unknown = replace(run_data.history[-1], metrics={"auc": None})
    assert Scores.from_run(replace(run_data, history=[unknown])).task_metrics == {}


def test_first_round_of_a_target(tmp_path: Path) -> None:
    scores = Scores.from_run(read_run(tmp_path / "run", FedAvg(), rounds=12))
    reached = [number for number, value in scores.values_by_round if value >= 0.5]
    assert scores.count_rounds_to(0.5) == reached[0]
    assert scores.count_rounds_to(0.999) is None


def test_metrics_without_measurement_are_none(tmp_path: Path) -> None:
    run_data = read_run(tmp_path / "run", FedAvg(), rounds=3)
    nothing = [replace(drop_test(record), client_accuracy=None) for record in run_data.history]
    scores = Scores.from_run(replace(run_data, history=nothing))
    assert (scores.best, scores.last, scores.ten_rounds, scores.amplitude) == (None,) * 4
    assert (scores.client_mean, scores.client_worst, scores.agreement) == (None,) * 3
    assert scores.count_rounds_to(0.1) is None


def test_the_last_ten_rounds_are_rounds_and_not_tests(tmp_path: Path) -> None:
    """With a test every fourth round, three of rounds 3 to 12 have one: 4, 8 and 12."""
    run_data = read_run(tmp_path / "run", FedAvg(), rounds=14)
    values = [record.accuracy or 0.0 for record in run_data.history]
    tested = [r if r.round % 4 == 0 else drop_test(r) for r in run_data.history]
    scores = Scores.from_run(replace(run_data, history=tested))
    assert scores.values_by_round == ((4, values[3]), (8, values[7]), (12, values[11]))
    assert scores.ten_rounds == pytest.approx((values[3] + values[7] + values[11]) / 3)
    later = Scores.from_run(
        replace(run_data, history=[*tested[:3], drop_test(tested[3]), *tested[4:]])
    )
    assert later.ten_rounds == pytest.approx((values[7] + values[11]) / 2)
    assert later.amplitude == pytest.approx(abs(values[7] - values[11]))
    assert later.last == values[11]
    assert later.count_rounds_to(values[7]) in (8, 12)


def test_clients_without_a_test_are_ignored(tmp_path: Path) -> None:
    run_data = read_run(tmp_path / "run", FedAvg(), rounds=5)
    some: list[float | None] = [None] * 12
    some[3], some[7] = 0.25, 0.75
    history = [*run_data.history[:-1], replace(run_data.history[-1], client_accuracy=some)]
    sampled = replace(run_data, history=history)
    scores = Scores.from_run(sampled)
    assert (scores.client_mean, scores.client_deviation, scores.client_worst) == (0.5, 0.25, 0.25)
    assert list(sampled.client_accuracy[5].values()) == [0.25, 0.75]
    assert sampled.test_sample_text == "2 of 12 clients"
    assert run_data.test_sample_text == ""


def read_timed_run(path: Path, seconds: float | None, speeds: str = "1:9") -> RunData:
    """Return a run of 12 rounds of the given duration."""

    def set_clock(record: RoundRecord) -> RoundRecord:
        return replace(record, clock=None if seconds is None else seconds * record.round)

    return read_run(path, FedAvg(), change_record=set_clock, speeds=speeds)


def test_the_value_at_a_time_is_that_of_the_last_tested_round() -> None:
    values, ends = np.array([0.1, nan, 0.3, 0.4]), [2.0, 3.0, 3.0, 8.0]
    times = np.array([1.0, 2.0, 2.5, 3.0, 7.9, 8.0, 8.1])
    found = resample_at_times(values, ends, times)
    np.testing.assert_array_equal(found, [nan, 0.1, 0.1, 0.3, 0.3, 0.4, nan])
    assert np.isnan(resample_at_times(np.array([nan]), [1.0], times)).all()


def test_only_runs_with_speeds_and_a_complete_clock_have_times(tmp_path: Path) -> None:
    assert read_timed_run(tmp_path / "timed", 0.5).round_end_times[:2] == [0.5, 1.0]
    assert read_timed_run(tmp_path / "equal", 0.5, speeds="").round_end_times == []
    assert read_timed_run(tmp_path / "untimed", None).round_end_times == []


@pytest.mark.parametrize(("slow", "is_logarithmic"), [(2.0, False), (40.0, True)])
def test_the_time_axis_is_logarithmic_if_runs_end_far_apart(
    slow: float, is_logarithmic: bool, tmp_path: Path
) -> None:
    runs = [read_timed_run(tmp_path / "fast", 1.0), read_timed_run(tmp_path / "slow", slow)]
    times, logarithmic = make_time_axis(runs)
    assert logarithmic is is_logarithmic
    assert (times[0], times[-1]) == (pytest.approx(1.0), pytest.approx(12 * slow))
    steps = np.diff(np.log(times) if is_logarithmic else times)
    assert steps.max() == pytest.approx(steps.min())
