from pathlib import Path

import pytest
import torch
from rich.console import Console

from cadis.algorithm import BaseMethod
from cadis.algorithm.methods import CADIS, CADISPaper, FedAvg
from cadis.analysis import RunData, read_results
from cadis.report import draw_figures
from cadis.report.terminal import run_progress, summary_table
from cadis.store import RunFolder
from cadis.store.observations import clusters_of
from support import run_small


def finished(folder: Path, method: BaseMethod, clusters: list[int] | None) -> RunFolder:
    options = {"per_round": 3, "workers": 1, "epochs": 2, "lr": 0.1, "true_clusters": clusters}
    run_small(rounds=4, method=method, out=folder, **options)
    return RunFolder(folder)


@pytest.mark.parametrize("clusters", [None, [0, 0, 0, 1, 2]])
@pytest.mark.parametrize("method", [CADIS(), CADISPaper(), CADISPaper(transitive="off"), FedAvg()])
def test_figures_are_drawn(method: BaseMethod, clusters: list[int] | None, tmp_path: Path) -> None:
    folder = finished(tmp_path / "run", method, clusters)
    drawn = draw_figures(read_results([folder.path]), folder.figures, pdf=False)
    names = {"accuracy", "confusion", "federation", "clients", "loss", "measures"}
    names |= {"voice"} if clusters else set()
    names |= {"similarity", "clusters", "flow"} if method.name != "fedavg" else set()
    names |= {"convergence"} if method.name == "cadis-paper" else set()  # others estimate nothing
    assert {path.name for path in drawn} == {f"{name}.png" for name in names}
    for path in drawn:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 8000


def test_grouped_together_by_hand(tmp_path: Path) -> None:
    run_data = RunData.read(finished(tmp_path / "run", CADIS(), [0, 0, 0, 1, 2]))
    shares = run_data.grouped_together()
    for row, one in enumerate(run_data.ordered_clients):
        for column, other in enumerate(run_data.ordered_clients):
            shared = [r for r in run_data.history if {one, other} <= set(r.participants)]
            together = [
                labels[r.participants.index(one)] == labels[r.participants.index(other)]
                for r in shared
                if (labels := clusters_of(r)) is not None
            ]
            expected = sum(together) / len(together) if together else torch.nan
            assert shares[row, column].item() == pytest.approx(expected, nan_ok=True)


def test_summary_table_tells_the_run(tmp_path: Path) -> None:
    folder = finished(tmp_path / "run", CADIS(), [0, 0, 0, 1, 2])
    console = Console(width=90, record=True)
    console.print(summary_table(folder.read_json("summary.json"), "abcde"))
    text = console.export_text()
    told = ("CADIS after 4 rounds", "rare classes (c, d, e)", "adjusted Rand")
    assert all(words in text for words in told)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_tells_rounds_and_accuracy(terminal: bool, tmp_path: Path) -> None:
    console = Console(width=90, record=True, force_terminal=terminal)
    with run_progress(console, 3) as (on_round, callbacks):
        callbacks.progress("reading pictures", 3, 4)
        callbacks.progress("downloading", 5, 0)  # nobody knows how much there is
        callbacks.say("Skipped x.")
        run_small(rounds=3, workers=1, on_round=on_round)
    text = console.export_text()
    told = ("reading pictures", "downloading", "Skipped x.", "3/3", "accuracy 0.", "clusters")
    assert [words for words in told if words not in text] == []
    assert not list(tmp_path.iterdir())
