"""Progress display of a study."""

import io
import re
from pathlib import Path

from rich.console import Console

from cadis.algorithm import ServerState
from cadis.algorithm.methods import FedAvg
from cadis.experiment import make_method_variants, run_study
from cadis.report.study_display import show_study_progress
from cadis.server import RoundResult, RunState
from cadis.store import Study, StudyFolder, Variant, list_planned_runs
from fabricated import write_run

QUICK = {"rounds": "2", "clients": "8", "per_round": "4", "epochs": "1", "workers": "1"}


def run_and_capture(folder: StudyFolder, methods: list[str], terminal: bool, **changed: str) -> str:
    """Run a study and return its output in a terminal or a file."""
    study = folder.add(
        Study("compare", make_method_variants(methods, {}, QUICK | changed), (0,), "")
    )
    paper = io.StringIO()
    console = Console(file=paper, force_terminal=terminal, width=100)
    with show_study_progress(console, list(list_planned_runs(folder, study))) as callbacks:
        run_study(folder, study, callbacks)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", paper.getvalue())


def test_a_terminal_has_a_bar_for_each_method_and_the_time_left(tmp_path: Path) -> None:
    text = run_and_capture(StudyFolder(tmp_path / "study"), ["fedavg", "cadis"], terminal=True)
    assert re.search(r"FedAvg +seed 0: 2/2 .*accuracy 0\.\d{3}", text)
    assert re.search(r"CADIS +seed 0: 1/2 ", text)
    assert re.search(r"all runs +1/2 .*0:00:\d\d", text)
    assert re.search(r"all runs +2/2", text)
    again = run_and_capture(StudyFolder(tmp_path / "study"), ["fedavg", "cadis"], terminal=True)
    assert "finished before" in again


def test_many_variants_share_one_bar(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    options = make_method_variants(["fedavg"], {}, QUICK)[0].options
    many = tuple(Variant(f"v{n}", f"variant {n}", options) for n in range(13))
    runs = list(list_planned_runs(folder, folder.add(Study("compare", many, (0,), ""))))
    record = write_run(tmp_path / "run", FedAvg(), rounds=1).read_history()[0]
    result = RoundResult(record, None, RunState(1, ServerState({})))
    paper = io.StringIO()
    with show_study_progress(
        Console(file=paper, force_terminal=True, width=120), runs
    ) as callbacks:
        callbacks.begin(runs[4])(result)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", paper.getvalue()).replace("\r", "\n").splitlines()
    assert {line.split()[0] for line in lines if line.strip()} == {"all"}
    assert any(f"variant 4, seed 0: 1/2, accuracy {record.accuracy:.3f}" in line for line in lines)


def test_a_file_gets_one_line_per_run(tmp_path: Path) -> None:
    text = run_and_capture(StudyFolder(tmp_path / "study"), ["fedavg", "cadis"], terminal=False)
    assert re.findall(r"run \d/2: \w+, seed 0: accuracy", text) == [
        "run 1/2: FedAvg, seed 0: accuracy",
        "run 2/2: CADIS, seed 0: accuracy",
    ]


def test_failures_are_shown(tmp_path: Path) -> None:
    for terminal in (True, False):
        folder = StudyFolder(tmp_path / f"study-{terminal}")
        text = run_and_capture(folder, ["fedavg"], terminal, lr="1e30")
        assert "FedAvg, seed 0: Round 1" in text.replace("\n", " ")
