"""A run is read whatever its method is, and whoever wrote it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cadis._io import read_toml, to_toml
from cadis.algorithm.methods import CADIS, FedAvg, SingleSet
from cadis.analysis import Comparison, RunData, answer, read_results
from cadis.report import draw_figures
from cadis.report.page.content import page_data
from cadis.server import RoundRecord
from cadis.store import HistoryWriter, RunFolder, replace_text
from fabricated import read_run, with_measures, write_run

OWN = "gone/mymethod.py:Mine"
"""A method in a file that is not there any more."""


def rewrite(folder: RunFolder, history: list[RoundRecord]) -> None:
    folder.history_path.unlink()
    writer = HistoryWriter(folder.history_path)
    for record in history:
        writer.append(record)


def write_own(path: Path, keep: tuple[str, ...], **run: Any) -> RunFolder:
    """A run of a user's method, which tells some of what CADIS tells."""
    folder = write_run(path, CADIS(), **run)
    options = read_toml(path / "config.toml")
    del options["cadis"]
    further = {"task": "classification", "transforms": ["clip"], "clip": {"norm": 1.0}}
    options |= {"method": OWN, "mine": {"strength": 2}, **further}
    replace_text(path / "config.toml", to_toml(options))
    told = folder.read_history()
    reports = [{name: r.report[name] for name in keep} for r in told]
    rewrite(folder, [replace(r, report=own) for r, own in zip(told, reports, strict=True)])
    if folder.has_summary():
        folder.write_json("summary.json", folder.read_json("summary.json") | {"method": "mine"})
    return folder


def test_a_method_is_known_by_its_name_alone(tmp_path: Path) -> None:
    run_data = RunData.read(write_own(tmp_path / "run", ()))
    assert (run_data.name, run_data.label, run_data.pools_clients) == ("mine", "mine", False)
    going_on = RunData.read(write_own(tmp_path / "other", (), finished=False))
    assert (going_on.name, going_on.label) == ("Mine", "Mine")  # nobody has told it yet
    ours = read_run(tmp_path / "ours", FedAvg())
    assert (ours.name, ours.label, ours.pools_clients) == ("fedavg", "FedAvg", False)
    assert read_run(tmp_path / "pooled", SingleSet()).pools_clients


def test_the_best_round_so_far_is_told_by_the_tasks_headline(tmp_path: Path) -> None:
    """Nobody but the registry tells it before the run has ended."""
    folder = write_run(tmp_path / "run", FedAvg(), task="classification", finished=False)
    run_data = RunData.read(folder)
    accuracies = [record.accuracy or 0.0 for record in run_data.history]
    assert run_data.summary["best_accuracy"] == max(accuracies)
    own = read_run(tmp_path / "own", FedAvg(), task="a.py:Own", finished=False)
    assert own.summary["best_accuracy"] == max(accuracies)


def test_a_finished_run_of_another_headline_is_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", FedAvg(), further=with_measures, headline="auc")
    summary = RunData.read(folder).summary
    accuracies = [record.accuracy or 0.0 for record in folder.read_history()]
    assert summary["best_accuracy"] == min(accuracies)  # measures were made up so


FIGURES = {"accuracy", "federation", "confusion", "voice", "clients", "clients-rounds"}


@pytest.mark.parametrize(
    ("told", "figures"),
    [
        ((), set()),
        (("clusters",), {"clusters", "flow"}),
        (("similarity",), {"similarity", "convergence"}),
        (
            ("clusters", "similarity", "threshold"),
            {"clusters", "flow", "similarity", "convergence"},
        ),
    ],
)
def test_a_method_of_ones_own_gets_the_pictures_of_what_it_tells(
    told: tuple[str, ...], figures: set[str], tmp_path: Path
) -> None:
    folder = write_own(tmp_path / "run", told)
    results = read_results([folder.path])
    drawn = draw_figures(results, tmp_path / "figures", pdf=False)
    assert {path.stem for path in drawn} == FIGURES | figures
    assert (page_data(results)["grouping"] is not None) == bool(told)
    assert answer(Comparison(results)).startswith("mine reaches an accuracy")
    settings = page_data(results)["setup"]["options"]
    assert ["strength", "2"] in settings
    assert ["clip.norm", "1.0"] in settings


def test_from_clusters_alone_the_true_ones_are_found(tmp_path: Path) -> None:
    run_data = RunData.read(write_own(tmp_path / "run", ("clusters",), rounds=40))
    assert len(run_data.ordered_clients) == 12
    pairs = {(run_data.true_clusters[c], run_data.found_clusters[c]) for c in range(12)}
    assert len(pairs) == 3  # one to one: labels were made up so
    (run,) = page_data(read_results([run_data.path]))["grouping"]["runs"]
    assert run["measured"] is False
    assert set(run["threshold"]) == {None}
    assert run["agreement"][-1] == 1
