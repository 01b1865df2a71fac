"""No false winners: who is not better is not said to be."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cadis.algorithm.methods import CADIS, FedAvg, FedProx
from cadis.analysis import answer, details
from cadis.report.tables import notes, sheets
from cadis.server import RoundRecord
from fabricated import compare, together, write_run, write_study

CLAIMS = ("wins", "ahead", "best", "highest")


def same_for_all(record: RoundRecord) -> RoundRecord:
    return replace(record, accuracy=0.5 + record.round / 100, loss=0.3)


@pytest.mark.parametrize(
    ("seeds", "rounds", "begins"), [(1, 12, "One seed: "), (3, 1, "One round: ")]
)
def test_little_evidence_is_no_lead(seeds: int, rounds: int, begins: str, tmp_path: Path) -> None:
    levels = {"fedavg": 0.5, "cadis": 0.9, "fedprox": 0.7}
    comparison = compare(tmp_path, levels, seeds, rounds=rounds)
    said = answer(comparison)
    assert said.startswith(begins + "CADIS has accuracy 0.")
    assert said.endswith("; that does not tell who is better.")
    assert not any(claim in said for claim in CLAIMS)
    assert all(sheet.best == [] for sheet in sheets(comparison))


def test_one_seed_is_named(tmp_path: Path) -> None:
    assert "All numbers are those of one seed, 0." in notes(compare(tmp_path, {"fedavg": 0.5}, 1))


def test_equal_results_are_level_and_exactly_alike(tmp_path: Path) -> None:
    levels = {"fedavg": 0.5, "cadis": 0.5}
    comparison = compare(tmp_path, levels, further=same_for_all)
    assert answer(comparison) == "FedAvg and CADIS are level: accuracy 0.575, over 3 seeds."
    assert "CADIS gave exactly the same as FedAvg in every round." in details(comparison)
    assert {column for _, column in sheets(comparison)[0].best} <= {5}  # made up by class


def test_two_at_the_top_are_level_above_the_baseline(tmp_path: Path) -> None:
    more = [
        write_run(tmp_path / f"{method.name}{seed}", method, seed, further=same_for_all)
        for method in (CADIS(), FedProx())
        for seed in range(3)
    ]
    comparison = together(write_study(tmp_path / "study", {"fedavg": 0.3}, 3), *more)
    said = answer(comparison)
    assert said.startswith("CADIS and FedProx are level: accuracy 0.575, ")
    assert "percentage points above FedAvg; the difference is significant" in said
    rows = [row[0] for row in sheets(comparison)[0].rows]
    assert rows == ["CADIS", "FedProx", "FedAvg"]
    assert {(0, 3), (1, 3)} <= set(sheets(comparison)[0].best)  # both, in the column that decides


def test_nobody_wins_whose_lead_over_the_next_may_be_chance(tmp_path: Path) -> None:
    comparison = compare(tmp_path, {"fedavg": 0.4, "cadis": 0.9, "fedprox": 0.898}, 4)
    said = answer(comparison)
    assert "has the highest mean, accuracy 0." in said
    assert "above FedAvg; the difference is significant" in said
    assert said.endswith(" may be chance.")
    assert "wins" not in said


def test_the_same_lead_in_two_seeds_is_not_significant(tmp_path: Path) -> None:
    """Few test samples make such leads, and Student's t-test is sure of them."""

    def better(record: RoundRecord) -> RoundRecord:
        return replace(record, accuracy=0.6 + record.round / 100)

    runs = [
        write_run(tmp_path / f"{method.name}{seed}", method, seed, further=further)
        for method, further in ((FedAvg(), same_for_all), (CADIS(), better))
        for seed in (0, 1)
    ]
    said = answer(together(*runs))
    assert said.startswith("CADIS has the highest mean, accuracy 0.675, 10.0 percentage points")
    assert "may be chance (corrected p = 0.500)" in said


@pytest.mark.parametrize(
    ("name", "value"), [("partition", "dirichlet"), ("client_test", 0.5), ("model", "mlp")]
)
def test_who_learns_something_else_is_no_rival(name: str, value: Any, tmp_path: Path) -> None:
    standard: dict[str, Any] = {"partition": "mc", "client_test": 0.0, "model": "cnn"}
    runs = [
        write_run(tmp_path / f"{place}{seed}", FedAvg(), seed, level=level, **options)
        for place, level, options in (("a", 0.5, standard), ("b", 0.9, standard | {name: value}))
        for seed in range(3)
    ]
    comparison = together(*runs)
    assert answer(comparison) == (
        f"These runs learn different things ({name}): they are shown side by side, not compared."
    )
    assert details(comparison) == []
    assert all(sheet.best == [] for sheet in sheets(comparison))
    assert not any(sheet.caption.startswith("Against") for sheet in sheets(comparison))


def test_rivals_among_others_are_compared_with_each_other_only(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / f"{p}{m.name}{seed}", m, seed, level=level, partition=p)
        for p, high in (("mc", 0.9), ("dirichlet", 0.5))
        for m, level in ((FedAvg(), 0.4), (CADIS(), high))
        for seed in range(4)
    ]
    comparison = together(*runs)
    assert answer(comparison).startswith("These runs learn different things (partition)")
    first, second = details(comparison)
    assert first.startswith("partition=mc: CADIS wins: accuracy 0.")
    assert second.startswith("partition=dirichlet: CADIS ")
    overview, *others = sheets(comparison)
    assert overview.columns == ["method", "mc", "dirichlet", "mean"]
    assert [row[0] for row in overview.rows] == ["CADIS", "FedAvg"]
    values = [[float(cell.partition("±")[0]) for cell in row[1:]] for row in overview.rows]
    for one, other, mean in values:
        assert mean == pytest.approx((one + other) / 2, abs=0.0011)
    assert others[0].caption == "partition=mc: Accuracy on the test set"
    against = [sheet for sheet in others if "Against FedAvg" in sheet.caption]
    assert len(against) == 2
    assert all(len(sheet.rows) == 1 for sheet in against)
