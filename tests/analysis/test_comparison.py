from pathlib import Path

import pytest
from scipy import stats

from cadis.algorithm.methods import CADIS, FedAvg, SingleSet
from cadis.analysis import HEADLINE, MEASURE, answer, details
from fabricated import compare, together, with_clock, write_run


def test_tests_are_paired_by_seed(tmp_path: Path) -> None:
    comparison = compare(tmp_path, {"fedavg": 0.7, "cadis": 0.8, "fedprox": 0.7})
    cadis, fedavg = comparison.groups[1], comparison.groups[0]
    own, theirs = ([scores.ten_rounds for scores in g.scores] for g in (cadis, fedavg))
    test = comparison.test(cadis, HEADLINE)
    assert test is not None
    assert test.p_value == pytest.approx(stats.ttest_rel(own, theirs).pvalue)
    assert comparison.test(fedavg, HEADLINE) is None
    assert comparison.ratio(cadis, MEASURE["server_seconds"]) == pytest.approx(1)


def test_only_seeds_that_both_have_are_paired(tmp_path: Path) -> None:
    comparison = together(
        *(write_run(tmp_path / f"a{n}", FedAvg(), n) for n in (0, 1, 2)),
        *(write_run(tmp_path / f"b{n}", CADIS(), n) for n in (1, 2, 3)),
    )
    test = comparison.test(comparison.groups[1], HEADLINE)
    assert test is not None
    assert test.count == 2


def test_rounds_to_and_speed_up_by_hand(tmp_path: Path) -> None:
    comparison = compare(tmp_path, {"fedavg": 0.6, "cadis": 0.9})
    fedavg, cadis = comparison.groups
    rounds = [[s.rounds_to(0.5) or 0 for s in group.scores] for group in (fedavg, cadis)]
    found = comparison.rounds_to(cadis, 0.5)
    assert found.rounds is not None
    assert found.rounds.mean == pytest.approx(sum(rounds[1]) / 3)
    assert found.speed_up == pytest.approx(sum(rounds[0]) / sum(rounds[1]))
    never = comparison.rounds_to(fedavg, 0.85)
    assert (never.rounds, never.reached, never.runs, never.speed_up) == (None, 0, 3, None)
    assert comparison.rounds_to(cadis, 0.85).speed_up is None  # the baseline never got there


def test_simulated_time_to_an_accuracy_by_hand(tmp_path: Path) -> None:
    levels = {"fedavg": 0.6, "cadis": 0.9, "singleset": 0.9}
    comparison = compare(tmp_path / "timed", levels, further=with_clock, speeds="1:9")
    fedavg, cadis, _ = comparison.groups
    rounds, time = comparison.rounds_to(cadis, 0.5), comparison.time_to(cadis, 0.5)
    assert comparison.has_clock
    assert rounds.rounds is not None
    assert time.rounds is not None
    assert time.rounds.mean == pytest.approx(10 * rounds.rounds.mean)  # 10 seconds a round
    assert time.speed_up == pytest.approx(rounds.speed_up)
    assert time.reached == 3
    assert comparison.time_to(fedavg, 0.85).rounds is None
    untold = compare(tmp_path / "untold", levels, further=with_clock)
    assert not untold.has_clock  # everybody was equally fast
    assert untold.time_to(untold.groups[1], 0.5).rounds is None


def test_targets_are_round_numbers_that_are_reached(tmp_path: Path) -> None:
    comparison = compare(tmp_path, {"fedavg": 0.55, "cadis": 0.9, "singleset": 1.0}, rounds=25)
    low, high = comparison.targets
    for group, target in zip(comparison.groups[:2], (low, high), strict=True):
        assert all((scores.best or 0) >= target for scores in group.scores)
    assert (low, high) == (0.5, 0.9)


def test_the_answer_names_the_winner_and_whether_it_may_be_chance(tmp_path: Path) -> None:
    clear = compare(tmp_path / "clear", {"fedavg": 0.5, "cadis": 0.9, "singleset": 1.0}, seeds=4)
    assert answer(clear).startswith("CADIS wins: accuracy 0.")
    assert "above FedAvg" in answer(clear)
    assert "significant (corrected p < 0.001)" in answer(clear)
    assert "smallest clusters (dog, <img" in details(clear)[1]
    turned = answer(compare(tmp_path / "turned", {"fedavg": 0.9, "cadis": 0.5}))
    assert turned.startswith("FedAvg wins")
    assert "above CADIS" in turned
    close = answer(compare(tmp_path / "close", {"fedavg": 0.8, "cadis": 0.801}, seeds=2))
    assert close.startswith("CADIS has the highest mean, accuracy 0.")
    assert "with 2 seeds that may be chance" in close


def test_the_answer_about_one_run(tmp_path: Path) -> None:
    for method in (SingleSet(), CADIS()):
        alone = answer(together(write_run(tmp_path / method.name, method)))
        assert alone.startswith(f"{type(method).__name__} reaches an accuracy of 0.")
