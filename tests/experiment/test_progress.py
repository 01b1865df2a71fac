"""What a program that calls ``cadis.run`` sees: progress, warnings, trackers, and short reprs."""

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
from cadis.data import Examples, Subsets
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
def test_a_script_whose_output_is_kept_says_nothing_unless_asked(options: str) -> None:
    command = [sys.executable, "-c", SCRIPT, options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("RunResult(CADIS, 3 rounds, accuracy ")
    assert ("\nround 3/3: accuracy " in done.stderr) if "True" in options else done.stderr == ""


@pytest.mark.parametrize(("options", "shown"), [("{}", True), ('{"progress": False}', False)])
def test_a_terminal_has_a_bar_unless_it_is_not_wanted(options: str, shown: bool) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", SCRIPT, options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 10_000):
                said += part
        except OSError:  # so a terminal ends
            pass
    os.close(ours)
    assert process.returncode == 0
    assert (b"3/3" in said) == shown
    assert shown or said == b""


def test_whoever_asks_to_hear_of_rounds_does_so_besides(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[RoundResult] = []
    run(progress=True, on_round=heard.append)
    assert [result.record.round for result in heard] == [1, 2]
    assert "round 2/2: accuracy" in capsys.readouterr().err


def test_clients_that_are_left_out_are_warned_of_once() -> None:
    clients = list(small_federation().clients)
    clients[3] = Examples(clients[3].inputs * 1e37, clients[3].labels)
    with pytest.warns(UserWarning, match="left out|without") as caught:
        run(clients=clients, client_ids=["a", "b", "c", "d", "e"], rounds=3)
    assert [str(each.message) for each in caught] == [
        "Round 1 is without client d: its model is infinite or not a number.",
        "3 updates of one client were left out; the records name them.",
    ]


def test_of_many_who_are_left_out_ten_are_named() -> None:
    said: list[str] = []
    left_out = RejectionLog(said.append)
    given = run(rounds=1).history[0]
    left_out.hear(given)
    assert said == []
    many = [Rejection(client, "made up") for client in range(30)]
    left_out.hear(replace(given, rejected=many))
    left_out.finish()
    assert len(said) == 11
    assert said[9] == "Round 1 is without client 9: made up."
    assert said[10] == "30 updates of 30 clients were left out; the records name them."


def test_a_tracker_is_told(tmp_path: Path) -> None:
    skip_without("tensorboard")
    run(track="tensorboard", out=tmp_path / "run")
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))
    assert RunFolder(tmp_path / "run").read_json("tracking.json")["tensorboard"]["finished"] == 2


def test_a_tracker_wants_a_folder_and_a_name_that_is_known(tmp_path: Path) -> None:
    with pytest.raises(CadisError, match="give one as out"):
        run(track="tensorboard")
    with pytest.raises(CadisError, match="no tracker 'neptune'"):
        run(track="neptune", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_version_is_the_packages() -> None:
    assert cadis.__version__ == version("cadis")
    assert "__version__" in dir(cadis)


def test_a_result_is_a_line(tmp_path: Path) -> None:
    kept, not_kept = run(out=tmp_path), run(rounds=1, method="fedavg")
    best, where = kept.summary["best_accuracy"], kept.summary["best_round"]
    assert repr(kept) == (
        f"RunResult(CADIS, 2 rounds, accuracy {kept.accuracy:.3f}, best {best:.3f} in round "
        f"{where}, folder {tmp_path})"
    )
    assert repr(not_kept).startswith("RunResult(FedAvg, 1 round, accuracy")
    assert "folder" not in repr(not_kept)


def test_what_holds_a_lot_says_how_much() -> None:
    many = blobs(5000, [0, 1], seed=0)
    heard: list[RoundResult] = []
    shared = Subsets(many, tuple(torch.arange(5000).split(50)))
    result = run(clients=shared, on_round=heard.append)
    round_result = heard[0]
    held = (many, shared, Federation(shared, many), round_result, *result.history)
    for value in (*held, round_result.state, round_result.state.server.models["model"]):
        assert len(repr(value)) < 1200, repr(value)
        assert "\n" not in repr(value)
    assert repr(many) == "Examples(inputs=<5000 x 1 x 4 x 4, float32>, labels=<5000, int64>)"
    assert "indices=<100 items>" in repr(shared)
    assert repr(result.history[0]).startswith("RoundRecord(round=1, accuracy=")
    summary = PartitionSummary("t", ("a",), (0,), torch.ones(1, 1), None, 1, 1)
    assert "counts=<1 x 1, float32>" in repr(summary)


class Handle:
    """What a notebook gives to change an output."""

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def update(self, content: dict[str, str], raw: bool) -> None:
        assert raw
        self._told.append(content["text/plain"])


def test_a_notebook_has_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def display(content: dict[str, str], raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        assert content["text/html"].startswith('<progress max="3" value="0"></progress> ')
        told.append(content["text/plain"])
        return Handle(told)

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr("cadis.report.notebook._REFRESH_SECONDS", 0.0)
    bar = NotebookBar(3)
    bar.draw("training clients 50%")
    bar.advance(1, "accuracy 0.500")
    bar.advance(3, "accuracy 0.600")
    assert told[0] == "round 0/3, starting"
    assert told[1] == "round 0/3, starting, training clients 50%"
    assert told[2].startswith("round 1/3, accuracy 0.500, about ")
    assert told[3].startswith("round 3/3, accuracy 0.600, ")
    assert told[3].endswith(" s")
