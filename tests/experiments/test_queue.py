"""The queue of long experiments: it resumes, never repeats a run, and reports its status."""

from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from cadis.errors import CadisError
from cadis.store import replace_text
from experiments import queue, running
from experiments.plans import PLANS, QUEUE, Plan

TINY = Plan(
    "A tiny one",
    {"clients": 6, "per_round": 3, "rounds": 4, "epochs": 1, "test_clients": 0},
    {"mc": {"partition": "mc"}},
    ("fedavg", "cadis-paper"),
    1,
    0.2,
)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setitem(PLANS, "tiny", TINY)
    monkeypatch.setattr(queue, "QUEUE", ("tiny",))
    monkeypatch.setattr("os.nice", lambda _: 19)  # the tests keep their priority
    results = tmp_path / "results"
    results.mkdir()
    return tmp_path / "home", results


def stored(results: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in run.items() if key != "seconds_per_round"}
        for run in running.results_of("tiny", results)
    ]


def test_all_runs_are_stored_with_their_commit_and_none_is_repeated(
    folders: tuple[Path, Path],
) -> None:
    home, results = folders
    queue.work("", *folders)
    runs = stored(results)
    assert [run["method"] for run in runs] == ["fedavg", "cadis-paper"]
    assert all(len(run["commit"]) == 40 and len(run["accuracy"]) == 4 for run in runs)
    assert not list((home / "runs").iterdir())
    queue.work("", *folders)
    assert stored(results) == runs


def test_an_interrupted_run_resumes_from_its_checkpoint(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, results = folders
    whole = tmp_path / "whole"
    whole.mkdir()
    queue.work("", tmp_path / "other-home", whole)

    def fail_after_two_rounds(path: Path, text: str) -> None:
        replace_text(path, text)
        if '"round": 2' in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(queue, "replace_text", fail_after_two_rounds)
    with pytest.raises(KeyboardInterrupt):
        queue.work("", *folders)
    assert stored(results) == []
    current = queue._current(home)
    assert current is not None
    assert (current.round, current.rounds) == (2, 4)
    monkeypatch.setattr(queue, "replace_text", replace_text)
    queue.work("", *folders)
    assert stored(results) == stored(whole)


def test_the_status_shows_what_is_finished_and_left(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    queue.print_status(*folders)
    assert "0 of 2" in capsys.readouterr().out
    queue.work("", *folders)
    queue.print_status(*folders)
    shown = capsys.readouterr().out
    assert "2 of 2" in shown
    assert "Not running" in shown


def test_a_second_queue_is_refused(folders: tuple[Path, Path]) -> None:
    home, _ = folders
    home.mkdir()
    with (
        FileLock(home / "lock"),
        pytest.raises(CadisError, match="running already"),
    ):
        queue.work("", *folders)


def test_our_default_is_not_queued_before_it_is_settled() -> None:
    methods = {task.method for name in QUEUE for task in running.tasks_of(name)}
    assert "cadis" not in methods
    assert "cadis-paper" in methods
