"""A method is called better only if it is."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cadis.algorithm.methods import CADIS, FedAvg, FedProx
from cadis.analysis import explain_verdict, write_verdict
from cadis.report.notes import write_notes
from cadis.report.tables import make_tables
from cadis.server import RoundRecord
from fabricated import compare, compare_folders, write_run, write_study

CLAIMS = ("better than", "the best", "highest")


def set_same_accuracy(record: RoundRecord) -> RoundRecord:
    return replace(record, accuracy=0.5 + record.round / 100, loss=0.3)


@pytest.mark.parametrize(
    ("seeds", "rounds", "reason"), [(1, 12, "One seed is"), (3, 1, "One round is")]
)
def test_one_seed_or_one_round_is_not_enough(
    seeds: int, rounds: int, reason: str, tmp_path: Path
) -> None:
    levels = {"fedavg": 0.5, "cadis": 0.9, "fedprox": 0.7}
    comparison = compare(tmp_path, levels, seeds, rounds=rounds)
    text = write_verdict(comparison)
    assert text.startswith("The accuracy is 0.")
    assert text.endswith(f". {reason} not enough to say which method is better.")
    assert not any(claim in text for claim in CLAIMS)
    assert all(table.best == [] for table in make_tables(comparison))


def test_a_single_seed_is_named(tmp_path: Path) -> None:
    notes = write_notes(compare(tmp_path, {"fedavg": 0.5}, 1))
    assert "All numbers come from a single seed (0)." in notes


def test_identical_results_are_equal_and_named(tmp_path: Path) -> None:
    levels = {"fedavg": 0.5, "cadis": 0.5}
    comparison = compare(tmp_path, levels, change_record=set_same_accuracy)
    assert write_verdict(comparison) == (
        "FedAvg and CADIS have the same accuracy of 0.575 (mean over 3 seeds)."
    )
    assert (
        "CADIS gave exactly the same accuracy and loss as FedAvg in every round."
        in explain_verdict(comparison)
    )
    assert {column for _, column in make_tables(comparison)[0].best} <= {5}  # random for each class


def test_two_methods_are_equal_and_better_than_the_baseline(tmp_path: Path) -> None:
    more = [
        write_run(tmp_path / f"{method.name}{seed}", method, seed, change_record=set_same_accuracy)
        for method in (CADIS(), FedProx())
        for seed in range(3)
    ]
    comparison = compare_folders(write_study(tmp_path / "study", {"fedavg": 0.3}, 3), *more)
    text = write_verdict(comparison)
    lead = "CADIS and FedProx have the same accuracy of 0.575 and are better than FedAvg by "
    assert text.startswith(lead)
    assert text.endswith("paired t-test over 3 seeds, Holm-corrected).")
    rows = [row[0] for row in make_tables(comparison)[0].rows]
    assert rows == ["CADIS", "FedProx", "FedAvg"]
    assert {(0, 3), (1, 3)} <= set(make_tables(comparison)[0].best)  # last 10 rounds


def test_a_method_that_is_close_to_the_best_is_named(tmp_path: Path) -> None:
    comparison = compare(tmp_path, {"fedavg": 0.4, "cadis": 0.9, "fedprox": 0.898}, 4)
    text = write_verdict(comparison)
    assert " is better than FedAvg by " in text
    assert re.search(r" (CADIS|FedProx) is not significantly better than (CADIS|FedProx)\.$", text)
    assert "the best" not in text


def test_the_best_of_three_methods_is_named(tmp_path: Path) -> None:
    text = write_verdict(compare(tmp_path, {"fedavg": 0.4, "cadis": 0.9, "fedprox": 0.6}, 4))
    assert text.startswith("CADIS is the best method, ")
    assert " percentage points better than FedAvg (accuracy 0." in text
    assert text.endswith("; p < 0.001, paired t-test over 4 seeds, Holm-corrected).")


def test_the_same_lead_in_two_seeds_is_not_significant(tmp_path: Path) -> None:
    """Small test sets give such leads, for which the t-test would give p = 0."""

    def set_better_accuracy(record: RoundRecord) -> RoundRecord:
        return replace(record, accuracy=0.6 + record.round / 100)

    runs = [
        write_run(tmp_path / f"{method.name}{seed}", method, seed, change_record=further)
        for method, further in ((FedAvg(), set_same_accuracy), (CADIS(), set_better_accuracy))
        for seed in (0, 1)
    ]
    text = write_verdict(compare_folders(*runs))
    assert text == (
        "CADIS has the highest accuracy, 0.675. This is 10.0 percentage points higher than with "
        "FedAvg, but the difference is not significant (p = 0.500, sign test over 2 seeds)."
    )


@pytest.mark.parametrize(
    ("name", "value"), [("partition", "dirichlet"), ("client_test", 0.5), ("model", "mlp")]
)
def test_runs_of_different_problems_are_not_compared(name: str, value: Any, tmp_path: Path) -> None:
    standard: dict[str, Any] = {"partition": "mc", "client_test": 0.0, "model": "cnn"}
    runs = [
        write_run(tmp_path / f"{place}{seed}", FedAvg(), seed, level=level, **options)
        for place, level, options in (("a", 0.5, standard), ("b", 0.9, standard | {name: value}))
        for seed in range(3)
    ]
    comparison = compare_folders(*runs)
    assert write_verdict(comparison) == (
        f"These runs differ in {name}, so they are shown side by side and not compared."
    )
    assert explain_verdict(comparison) == []
    assert all(table.best == [] for table in make_tables(comparison))
    assert not any(table.caption.startswith("Difference") for table in make_tables(comparison))


def test_comparable_runs_among_others_are_compared_with_each_other_only(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / f"{p}{m.name}{seed}", m, seed, level=level, partition=p)
        for p, high in (("mc", 0.9), ("dirichlet", 0.5))
        for m, level in ((FedAvg(), 0.4), (CADIS(), high))
        for seed in range(4)
    ]
    comparison = compare_folders(*runs)
    assert write_verdict(comparison).startswith("These runs differ in partition, ")
    first, second = explain_verdict(comparison)
    assert first.startswith("partition=mc: CADIS is better than FedAvg by ")
    assert second.startswith("partition=dirichlet: CADIS ")
    overview, *others = make_tables(comparison)
    assert overview.columns == ["method", "mc", "dirichlet", "mean"]
    assert [row[0] for row in overview.rows] == ["CADIS", "FedAvg"]
    values = [[float(cell.partition("±")[0]) for cell in row[1:]] for row in overview.rows]
    for one, other, mean in values:
        assert mean == pytest.approx((one + other) / 2, abs=0.0011)
    assert others[0].caption == "partition=mc: Accuracy on the test set"
    against = [table for table in others if "Difference from FedAvg" in table.caption]
    assert len(against) == 2
    assert all(len(table.rows) == 1 for table in against)
