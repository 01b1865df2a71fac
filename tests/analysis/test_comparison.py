from pathlib import Path

import pytest
from scipy import stats

from cadis.algorithm.methods import CADIS, FedAvg, SingleSet
from cadis.analysis import METRICS, RANKING_METRIC, explain_verdict, write_verdict
from fabricated import add_clock, compare, compare_folders, write_run


def test_tests_are_paired_by_seed(tmp_path: Path) -> None:
    comparison = compare(tmp_path, {"fedavg": 0.7, "cadis": 0.8, "fedprox": 0.7})
    cadis, fedavg = comparison.groups[1], comparison.groups[0]
    own, theirs = ([scores.ten_rounds for scores in g.scores] for g in (cadis, fedavg))
    test = comparison.test_against_baseline(cadis, RANKING_METRIC)
    assert test is not None
    assert test.p_value == pytest.approx(stats.ttest_rel(own, theirs).pvalue)
    assert comparison.test_against_baseline(fedavg, RANKING_METRIC) is None
    assert comparison.compute_ratio(cadis, METRICS["server_seconds"]) == pytest.approx(1)


def test_only_seeds_that_both_have_are_paired(tmp_path: Path) -> None:
    comparison = compare_folders(
        *(write_run(tmp_path / f"a{n}", FedAvg(), n) for n in (0, 1, 2)),
        *(write_run(tmp_path / f"b{n}", CADIS(), n) for n in (1, 2, 3)),
    )
    test = comparison.test_against_baseline(comparison.groups[1], RANKING_METRIC)
    assert test is not None
    assert test.count == 2


def test_rounds_to_and_speed_up_by_hand(tmp_path: Path) -> None:
    comparison = compare(tmp_path, {"fedavg": 0.6, "cadis": 0.9})
    fedavg, cadis = comparison.groups
    rounds = [[s.count_rounds_to(0.5) or 0 for s in group.scores] for group in (fedavg, cadis)]
    found = comparison.count_rounds_to(cadis, 0.5)
    assert found.rounds is not None
    assert found.rounds.mean == pytest.approx(sum(rounds[1]) / 3)
    assert found.speed_up == pytest.approx(sum(rounds[0]) / sum(rounds[1]))
    never = comparison.count_rounds_to(fedavg, 0.85)
    assert (never.rounds, never.num_reached, never.num_runs, never.speed_up) == (None, 0, 3, None)
    assert comparison.count_rounds_to(cadis, 0.85).speed_up is None  # the baseline never reaches it


def test_simulated_time_to_an_accuracy_by_hand(tmp_path: Path) -> None:
    levels = {"fedavg": 0.6, "cadis": 0.9, "singleset": 0.9}
    comparison = compare(tmp_path / "timed", levels, change_record=add_clock, speeds="1:9")
    fedavg, cadis, _ = comparison.groups
    rounds, time = comparison.count_rounds_to(cadis, 0.5), comparison.measure_time_to(cadis, 0.5)
    assert comparison.has_clock
    assert rounds.rounds is not None
    assert time.rounds is not None
    assert time.rounds.mean == pytest.approx(10 * rounds.rounds.mean)  # 10 seconds per round
    assert time.speed_up == pytest.approx(rounds.speed_up)
    assert time.num_reached == 3
    assert comparison.measure_time_to(fedavg, 0.85).rounds is None
    equal = compare(tmp_path / "equal", levels, change_record=add_clock)
    assert not equal.has_clock  # all clients have the same speed
    assert equal.measure_time_to(equal.groups[1], 0.5).rounds is None


def test_targets_are_round_numbers_that_methods_achieve(tmp_path: Path) -> None:
    comparison = compare(tmp_path, {"fedavg": 0.55, "cadis": 0.9, "singleset": 1.0}, rounds=25)
    low, high = comparison.targets
    for group, target in zip(comparison.groups[:2], (low, high), strict=True):
        assert all((scores.best or 0) >= target for scores in group.scores)
    assert (low, high) == (0.5, 0.9)


def test_verdict_names_the_better_method_and_the_significance(tmp_path: Path) -> None:
    clear = compare(tmp_path / "clear", {"fedavg": 0.5, "cadis": 0.9, "singleset": 1.0}, seeds=4)
    text = write_verdict(clear)
    assert text.startswith("CADIS is better than FedAvg by ")
    assert "percentage points (accuracy 0." in text
    assert text.endswith("; p < 0.001, paired t-test over 4 seeds).")
    assert "smallest clusters have (dog, <img" in explain_verdict(clear)[1]
    reverse = write_verdict(compare(tmp_path / "reverse", {"fedavg": 0.9, "cadis": 0.5}))
    assert reverse.startswith("FedAvg is better than CADIS by ")
    close = write_verdict(compare(tmp_path / "close", {"fedavg": 0.8, "cadis": 0.801}, seeds=2))
    assert close.startswith("CADIS has the highest accuracy, 0.")
    assert "but the difference is not significant (p = " in close
    assert close.endswith(", paired t-test over 2 seeds).")


def test_verdict_about_one_run(tmp_path: Path) -> None:
    for method in (SingleSet(), CADIS()):
        text = write_verdict(compare_folders(write_run(tmp_path / method.name, method)))
        assert text.startswith(f"{type(method).__name__} reaches an accuracy of 0.")
