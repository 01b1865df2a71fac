"""Runs of registered and of user-defined methods are read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cadis._io import read_toml, to_toml
from cadis.algorithm.methods import CADIS, FedAvg, SingleSet
from cadis.analysis import Comparison, RunData, read_results, write_verdict
from cadis.report import draw_figures
from cadis.report.page.content import make_page_data
from cadis.server import RoundRecord
from cadis.store import HistoryWriter, RunFolder, replace_text
from fabricated import add_metrics, read_run, write_run

OWN = "gone/mymethod.py:Mine"
"""A method in a file that no longer exists."""


def rewrite(folder: RunFolder, history: list[RoundRecord]) -> None:
    folder.history_path.unlink()
    writer = HistoryWriter(folder.history_path)
    for record in history:
        writer.append(record)


def write_user_run(path: Path, keep: tuple[str, ...], **run: Any) -> RunFolder:
    """Write a run of a user-defined method, which reports some of what CADIS reports."""
    folder = write_run(path, CADIS(), **run)
    options = read_toml(path / "config.toml")
    del options["cadis"]
    parts = {"task": "classification", "transforms": ["clip"], "clip": {"norm": 1.0}}
    options |= {"method": OWN, "mine": {"strength": 2}, **parts}
    replace_text(path / "config.toml", to_toml(options))
    history = folder.read_history()
    reports = [{name: record.report[name] for name in keep} for record in history]
    rewrite(folder, [replace(r, report=report) for r, report in zip(history, reports, strict=True)])
    if folder.has_summary():
        folder.write_json("summary.json", folder.read_json("summary.json") | {"method": "mine"})
    return folder


def test_a_method_is_identified_by_its_name(tmp_path: Path) -> None:
    run_data = RunData.read(write_user_run(tmp_path / "run", ()))
    assert (run_data.name, run_data.label, run_data.pools_clients) == ("mine", "mine", False)
    unfinished = RunData.read(write_user_run(tmp_path / "other", (), finished=False))
    assert (unfinished.name, unfinished.label) == ("Mine", "Mine")  # the name is not known yet
    ours = read_run(tmp_path / "ours", FedAvg())
    assert (ours.name, ours.label, ours.pools_clients) == ("fedavg", "FedAvg", False)
    assert read_run(tmp_path / "pooled", SingleSet()).pools_clients


def test_the_best_round_of_an_unfinished_run_is_selected_by_the_main_metric(tmp_path: Path) -> None:
    """Before the run has ended, only the registry knows the main metric."""
    folder = write_run(tmp_path / "run", FedAvg(), task="classification", finished=False)
    run_data = RunData.read(folder)
    accuracies = [record.accuracy or 0.0 for record in run_data.history]
    assert run_data.summary["best_accuracy"] == max(accuracies)
    own = read_run(tmp_path / "own", FedAvg(), task="a.py:Own", finished=False)
    assert own.summary["best_accuracy"] == max(accuracies)


def test_a_finished_run_with_another_main_metric_is_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", FedAvg(), change_record=add_metrics, main_metric="auc")
    summary = RunData.read(folder).summary
    accuracies = [record.accuracy or 0.0 for record in folder.read_history()]
    assert summary["best_accuracy"] == min(accuracies)  # the made-up AUC is highest there


FIGURES = {"accuracy", "federation", "confusion", "cluster-weights", "clients"}


@pytest.mark.parametrize(
    ("reported", "figures"),
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
def test_a_user_defined_method_gets_the_figures_of_its_report(
    reported: tuple[str, ...], figures: set[str], tmp_path: Path
) -> None:
    folder = write_user_run(tmp_path / "run", reported)
    results = read_results([folder.path])
    drawn = draw_figures(results, tmp_path / "figures", pdf=False)
    assert {path.stem for path in drawn} == FIGURES | figures
    assert (make_page_data(results)["clusters"] is not None) == bool(reported)
    assert write_verdict(Comparison(results)).startswith("mine reaches an accuracy")
    settings = make_page_data(results)["setup"]["options"]
    assert ["strength", "2"] in settings
    assert ["clip.norm", "1.0"] in settings


def test_true_clusters_are_recovered_from_reported_clusters(tmp_path: Path) -> None:
    run_data = RunData.read(write_user_run(tmp_path / "run", ("clusters",), rounds=40))
    assert len(run_data.client_order) == 12
    pairs = {(run_data.true_clusters[c], run_data.cluster_estimates[c]) for c in range(12)}
    assert len(pairs) == 3  # one to one
    (run,) = make_page_data(read_results([run_data.path]))["clusters"]["runs"]
    assert run["measured"] is False
    assert set(run["threshold"]) == {None}
    assert run["agreement"][-1] == 1
