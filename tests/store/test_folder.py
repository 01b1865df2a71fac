"""Files of the user never change, and only one process writes to a run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from cadis.errors import CadisError
from cadis.store import RunFolder, is_locked
from cli_support import refuse, succeed
from processes import processes, wait_until

QUICK = ["--rounds", "1", "--clients", "5", "--epochs", "1", "--workers", "1", "--model", "mlp"]


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


NAMES = ("config.toml", "federation.json", "summary.json", "model.safetensors")
USERS = {"config.toml": 'title = "x"', "thesis.md": "precious"}


def fill(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def check_refused(folder: Path) -> None:
    """Check that a new run in the folder is an error, and that no file changes."""
    before = read_files(folder.parent)
    with pytest.raises(CadisError, match="choose another"):
        RunFolder(folder).lock_new()
    assert read_files(folder.parent) == before


@pytest.mark.parametrize(
    "files",
    [
        USERS,
        {"config.toml": 'title = "x"'},
        {".important": "precious"},
        {"checkpoint/lock": "a note of the user"},
    ],
)
def test_files_of_the_user_do_not_change(files: dict[str, str], tmp_path: Path) -> None:
    fill(tmp_path / "s", files)
    check_refused(tmp_path / "s")


@pytest.mark.parametrize(
    "files",
    [
        dict.fromkeys(NAMES, "days of work") | {"history.jsonl": ""},
        {"config.toml": "rounds = 3", "checkpoint/notes.txt": "precious"},
        {"history.jsonl": '{"round": 1}\n'},
    ],
    ids=["finished run without history", "run with notes", "run with rounds"],
)
def test_run_is_not_overwritten(files: dict[str, str], tmp_path: Path) -> None:
    RunFolder(tmp_path / "s").lock_new().close()
    fill(tmp_path / "s", files)
    check_refused(tmp_path / "s")


def test_run_without_marker_or_with_a_link_is_not_overwritten(tmp_path: Path) -> None:
    for name in ("unmarked", "linked"):
        RunFolder(tmp_path / name).lock_new().close()
    fill(tmp_path, {"unmarked/config.toml": "rounds = 3", "options.toml": "rounds = 3"})
    (tmp_path / "unmarked" / ".cadis-run").unlink()
    (tmp_path / "linked" / "config.toml").symlink_to(tmp_path / "options.toml")
    for name in ("unmarked", "linked"):
        check_refused(tmp_path / name)


def test_command_refuses_a_folder_of_the_user(tmp_path: Path) -> None:
    fill(tmp_path, USERS)
    before = read_files(tmp_path)
    error = refuse("run", *QUICK, "--out", tmp_path)
    assert error.startswith(f"cadis: The folder {tmp_path} is not empty; choose another")
    assert read_files(tmp_path) == before


@pytest.mark.parametrize(
    "names",
    [
        (),
        (".cadis-run",),
        (".cadis-run", ".config.toml.draft", "checkpoint/lock"),
        (".cadis-run", "config.toml", ".federation.json.draft"),
        (".cadis-run", "config.toml", "federation.json", "checkpoint/.round-0.json.draft"),
        (
            ".cadis-run",
            "config.toml",
            "federation.json",
            "checkpoint/round-0.json",
            "checkpoint/clients/client-3-round-1.safetensors",
            "checkpoint/clients/.client-4-round-1.safetensors.draft",
        ),
        ("..cadis-run.draft", "checkpoint/lock"),
        ("checkpoint/lock",),
    ],
)
def test_run_that_was_killed_in_its_first_round_is_replaced(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    fill(folder, {name: "" if name.endswith("lock") else "half-written" for name in names})
    with closing(RunFolder(folder).lock_new()):
        assert read_files(folder).keys() == {".cadis-run", "checkpoint/lock"}


def test_run_that_was_killed_at_once_is_started_by_the_same_command(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run").lock_new().close()
    error = refuse("run", "--resume", "--out", tmp_path / "run")
    assert "There is no run in the folder" in error
    assert "start it again without resume" in error
    succeed("run", *QUICK, "--out", tmp_path / "run")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_second_process_does_not_change_a_run_in_progress(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "two")
    long = ["run", *QUICK[2:], "--rounds", "100000", "--out", str(folder.path)]
    with subprocess.Popen([sys.executable, "-m", "cadis", *long], stdout=subprocess.DEVNULL) as run:
        try:
            wait_until(lambda: is_locked(folder.checkpoint.lock_file), "the run is locked")
            wait_until((folder.path / "config.toml").exists, "the run has options")
            config = (folder.path / "config.toml").read_bytes()
            for second in (
                ["run", *QUICK, "--seed", 5, "--out", folder.path],
                ["run", "--resume", "--out", folder.path],
            ):
                error = refuse(*second)
                assert f"process {run.pid}" in error or "is not empty" in error
            assert (folder.path / "config.toml").read_bytes() == config
            wait_until(folder.has_rounds, "the first run continues")
        finally:
            run.send_signal(signal.SIGKILL)
    rounds = [record.round for record in folder.read_history()]
    assert rounds == list(range(1, len(rounds) + 1))


def test_process_cannot_lock_a_run_twice(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with closing(folder.lock_new()):
        assert is_locked(folder.checkpoint.lock_file)
        with pytest.raises(CadisError, match=f"is in use by process {os.getpid()}"):
            folder.lock_new()
        assert is_locked(folder.checkpoint.lock_file)
    assert not is_locked(folder.checkpoint.lock_file)


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_workers_end_with_their_run_during_training(tmp_path: Path) -> None:
    options = ["--clients", "5", "--rounds", "1", "--epochs", "1000000", "--workers", "2"]
    with processes(tmp_path) as started:
        run = started.start("run", [sys.executable, "-m", "cadis", "run", *options, "--out", "run"])
        wait_until(lambda: len(started.list_alive()) == 3, "both workers have started")
        time.sleep(1)  # until they train
        run.kill()
        wait_until(lambda: not started.list_alive(), "all processes have ended", seconds=5)


def test_missing_summary_is_an_error_and_is_written_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    succeed("run", *QUICK, "--out", folder.path)
    summary = folder.path / "summary.json"
    before = folder.read_json("summary.json")
    summary.unlink()
    error = refuse("report", folder.path)
    assert error == f"cadis: {summary} is missing; resume the run to write it again.\n"
    succeed("run", "--resume", "--out", folder.path)
    assert folder.read_json("summary.json")["confusion"] == before["confusion"]
