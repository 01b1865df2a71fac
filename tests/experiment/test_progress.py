"""Progress, warnings, trackers and reprs of ``cadis.run``."""

import os
import pty
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

import cadis
from cadis.analysis import PartitionSummary
from cadis.data import Samples, Subsets
from cadis.engine import Federation
from cadis.errors import CadisError
from cadis.experiment.execution import RejectionLog
from cadis.report.notebook import NotebookBar
from cadis.server import Rejection, RoundResult
from cadis.store import RunFolder
from support import blobs, run_small, small_federation
from tracker_support import skip_without

SCRIPT = """
import sys, torch, cadis
clients = [(torch.randn(8, 4), torch.randint(2, (8,))) for _ in range(3)]
options = eval(sys.argv[1])
result = cadis.run(torch.nn.Linear(4, 2), clients, clients[0], rounds=3, workers=1, **options)
print(result)
"""


def run(**changes: Any) -> cadis.RunResult:
    return run_small(**{"rounds": 2, "workers": 1, "epochs": 1} | changes)


@pytest.mark.parametrize("options", ["{}", '{"progress": True}'])
def test_script_without_terminal_shows_no_progress_by_default(options: str) -> None:
    command = [sys.executable, "-c", SCRIPT, options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("RunResult(CADIS, 3 rounds, accuracy ")
    assert ("\nround 3/3: accuracy " in done.stderr) if "True" in options else done.stderr == ""


@pytest.mark.parametrize(("options", "is_shown"), [("{}", True), ('{"progress": False}', False)])
def test_terminal_shows_a_progress_bar_by_default(options: str, is_shown: bool) -> None:
    terminal, program = pty.openpty()
    command = [sys.executable, "-c", SCRIPT, options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=program) as process:
        os.close(program)
        output = b""
        try:
            while part := os.read(terminal, 10_000):
                output += part
        except OSError:  # end of a terminal
            pass
    os.close(terminal)
    assert process.returncode == 0
    assert (b"3/3" in output) == is_shown
    assert is_shown or output == b""


def test_on_round_is_called_in_addition_to_progress(capsys: pytest.CaptureFixture[str]) -> None:
    results: list[RoundResult] = []
    run(progress=True, on_round=results.append)
    assert [result.record.round for result in results] == [1, 2]
    assert "round 2/2: accuracy" in capsys.readouterr().err


def test_rejected_updates_are_warned_of_once_per_client() -> None:
    clients = list(small_federation().clients)
    clients[3] = Samples(clients[3].inputs * 1e37, clients[3].labels)
    with pytest.warns(UserWarning, match="rejected") as caught:
        run(clients=clients, client_ids=["a", "b", "c", "d", "e"], rounds=3)
    assert [str(warning.message) for warning in caught] == [
        "Round 1: the update of client d was rejected: its model has NaN or infinite values.",
        "3 updates of one client were rejected; history.jsonl lists them.",
    ]


def test_at_most_ten_rejected_clients_are_named() -> None:
    output: list[str] = []
    log = RejectionLog(output.append)
    record = run(rounds=1).history[0]
    log.add(record)
    assert output == []
    many = [Rejection(client, "made up") for client in range(30)]
    log.add(replace(record, rejected=many))
    log.finish()
    assert len(output) == 11
    assert output[9] == "Round 1: the update of client 9 was rejected: made up."
    assert output[10] == "30 updates of 30 clients were rejected; history.jsonl lists them."


def test_run_is_logged_to_a_tracker(tmp_path: Path) -> None:
    skip_without("tensorboard")
    run(track="tensorboard", out=tmp_path / "run")
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))
    assert RunFolder(tmp_path / "run").read_json("tracking.json")["tensorboard"]["finished"] == 2


def test_tracker_needs_a_folder_and_a_known_name(tmp_path: Path) -> None:
    with pytest.raises(CadisError, match="give one as out"):
        run(track="tensorboard")
    with pytest.raises(CadisError, match="no tracker 'neptune'"):
        run(track="neptune", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_version_is_that_of_the_package() -> None:
    assert cadis.__version__ == version("cadis")
    assert "__version__" in dir(cadis)


def test_repr_of_a_result_is_one_line(tmp_path: Path) -> None:
    stored, temporary = run(out=tmp_path), run(rounds=1, method="fedavg")
    best, best_round = stored.summary["best_accuracy"], stored.summary["best_round"]
    assert repr(stored) == (
        f"RunResult(CADIS, 2 rounds, accuracy {stored.accuracy:.3f}, best {best:.3f} in round "
        f"{best_round}, folder {tmp_path})"
    )
    assert repr(temporary).startswith("RunResult(FedAvg, 1 round, accuracy")
    assert "folder" not in repr(temporary)


def test_reprs_of_large_objects_are_short() -> None:
    many = blobs(5000, [0, 1], seed=0)
    results: list[RoundResult] = []
    subsets = Subsets(many, tuple(torch.arange(5000).split(50)))
    result = run(clients=subsets, on_round=results.append)
    round_result = results[0]
    objects = (many, subsets, Federation(subsets, many), round_result, *result.history)
    for value in (*objects, round_result.state, round_result.state.server.models["model"]):
        assert len(repr(value)) < 1200, repr(value)
        assert "\n" not in repr(value)
    assert repr(many) == "Samples(inputs=<5000 x 1 x 4 x 4, float32>, labels=<5000, int64>)"
    assert "indices=<100 items>" in repr(subsets)
    assert repr(result.history[0]).startswith("RoundRecord(round=1, accuracy=")
    summary = PartitionSummary("t", ("a",), (0,), torch.ones(1, 1), None, 1, 1)
    assert "counts=<1 x 1, float32>" in repr(summary)


class Handle:
    """Handle that IPython returns to update an output."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def update(self, content: dict[str, str], raw: bool) -> None:
        assert raw
        self._lines.append(content["text/plain"])


def test_notebook_updates_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    def display(content: dict[str, str], raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        assert content["text/html"].startswith('<progress max="3" value="0"></progress> ')
        lines.append(content["text/plain"])
        return Handle(lines)

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr("cadis.report.notebook._REFRESH_SECONDS", 0.0)
    bar = NotebookBar(3)
    bar.draw("training clients 50%")
    bar.advance(1, "accuracy 0.500")
    bar.advance(3, "accuracy 0.600")
    assert lines[0] == "round 0/3, starting"
    assert lines[1] == "round 0/3, starting, training clients 50%"
    assert lines[2].startswith("round 1/3, accuracy 0.500, about ")
    assert lines[3].startswith("round 3/3, accuracy 0.600, ")
    assert lines[3].endswith(" s")
