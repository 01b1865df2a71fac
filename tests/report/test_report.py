from pathlib import Path

import pytest
import torch
from rich.console import Console

from cadis.algorithm import BaseMethod
from cadis.algorithm.methods import CADIS, CADISPaper, FedAvg
from cadis.analysis import RunData, read_results
from cadis.report import draw_figures
from cadis.report.terminal import make_summary_table, show_run_progress
from cadis.store import RunFolder
from cadis.store.observations import get_clusters
from support import run_small


def finish_run(folder: Path, method: BaseMethod, clusters: list[int] | None) -> RunFolder:
    options = {"per_round": 3, "workers": 1, "epochs": 2, "lr": 0.1, "true_clusters": clusters}
    run_small(rounds=4, method=method, out=folder, **options)
    return RunFolder(folder)


@pytest.mark.parametrize("clusters", [None, [0, 0, 0, 1, 2]])
@pytest.mark.parametrize("method", [CADIS(), CADISPaper(), CADISPaper(transitive="off"), FedAvg()])
def test_figures_are_drawn(method: BaseMethod, clusters: list[int] | None, tmp_path: Path) -> None:
    folder = finish_run(tmp_path / "run", method, clusters)
    drawn = draw_figures(read_results([folder.path]), folder.figures, pdf=False)
    names = {"accuracy", "confusion", "federation", "clients", "loss", "metrics"}
    names |= {"cluster-weights"} if clusters else set()
    names |= {"similarity", "clusters", "flow"} if method.name != "fedavg" else set()
    names |= {"convergence"} if method.name == "cadis-paper" else set()  # others need no estimates
    assert {path.name for path in drawn} == {f"{name}.png" for name in names}
    for path in drawn:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 8000


def test_coassociation_by_hand(tmp_path: Path) -> None:
    run_data = RunData.read(finish_run(tmp_path / "run", CADIS(), [0, 0, 0, 1, 2]))
    shares = run_data.compute_coassociation()
    for row, one in enumerate(run_data.client_order):
        for column, other in enumerate(run_data.client_order):
            shared = [r for r in run_data.history if {one, other} <= set(r.participants)]
            together = [
                labels[r.participants.index(one)] == labels[r.participants.index(other)]
                for r in shared
                if (labels := get_clusters(r)) is not None
            ]
            expected = sum(together) / len(together) if together else torch.nan
            assert shares[row, column].item() == pytest.approx(expected, nan_ok=True)


def test_the_summary_table_has_accuracy_and_clusters(tmp_path: Path) -> None:
    folder = finish_run(tmp_path / "run", CADIS(), [0, 0, 0, 1, 2])
    console = Console(width=90, record=True)
    console.print(make_summary_table(folder.read_json("summary.json"), "abcde"))
    text = console.export_text()
    expected = ("CADIS after 4 rounds", "rare classes (c, d, e)", "adjusted Rand index")
    assert all(words in text for words in expected)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_shows_rounds_and_accuracy(terminal: bool, tmp_path: Path) -> None:
    console = Console(width=90, record=True, force_terminal=terminal)
    with show_run_progress(console, 3) as (on_round, callbacks):
        callbacks.progress("reading pictures", 3, 4)
        callbacks.progress("downloading", 5, 0)  # unknown size
        callbacks.say("Skipped x.")
        run_small(rounds=3, workers=1, on_round=on_round)
    text = console.export_text()
    expected = ("reading pictures", "downloading", "Skipped x.", "3/3", "accuracy 0.", "clusters")
    assert [words for words in expected if words not in text] == []
    assert not list(tmp_path.iterdir())
