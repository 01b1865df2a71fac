"""A user's files are never touched, and only one process works on a run."""

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


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


NAMES = ("config.toml", "federation.json", "summary.json", "model.safetensors")
USERS = {"config.toml": 'title = "x"', "thesis.md": "precious"}


def fill(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def check_left_alone(folder: Path) -> None:
    """A folder that is not ours to use is refused, and stays as it is."""
    before = contents(folder.parent)
    with pytest.raises(CadisError, match="choose another"):
        RunFolder(folder).claim()
    assert contents(folder.parent) == before


@pytest.mark.parametrize(
    "files",
    [
        USERS,
        {"config.toml": 'title = "x"'},
        {".important": "precious"},
        {"checkpoint/lock": "the combination of my bicycle"},
    ],
)
def test_a_users_files_stay(files: dict[str, str], tmp_path: Path) -> None:
    fill(tmp_path / "s", files)
    check_left_alone(tmp_path / "s")


@pytest.mark.parametrize(
    "files",
    [
        dict.fromkeys(NAMES, "days of work") | {"history.jsonl": ""},
        {"config.toml": "rounds = 3", "checkpoint/notes.txt": "precious"},
        {"history.jsonl": '{"round": 1}\n'},
    ],
    ids=["a finished run that lost its history", "a begun run with notes", "a run with rounds"],
)
def test_a_run_stays(files: dict[str, str], tmp_path: Path) -> None:
    RunFolder(tmp_path / "s").claim().close()
    fill(tmp_path / "s", files)
    check_left_alone(tmp_path / "s")


def test_a_run_without_our_mark_or_with_a_link_stays(tmp_path: Path) -> None:
    for name in ("unmarked", "linked"):
        RunFolder(tmp_path / name).claim().close()
    fill(tmp_path, {"unmarked/config.toml": "rounds = 3", "options.toml": "rounds = 3"})
    (tmp_path / "unmarked" / ".cadis-run").unlink()
    (tmp_path / "linked" / "config.toml").symlink_to(tmp_path / "options.toml")
    for name in ("unmarked", "linked"):
        check_left_alone(tmp_path / name)


def test_the_command_refuses_a_users_folder(tmp_path: Path) -> None:
    fill(tmp_path, USERS)
    before = contents(tmp_path)
    done = refuse("run", *QUICK, "--out", tmp_path)
    assert done.startswith(f"cadis: The folder {tmp_path} is not empty; choose another")
    assert contents(tmp_path) == before


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
def test_a_run_that_was_killed_at_its_beginning_makes_room(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    fill(folder, {name: "" if name.endswith("lock") else "half-written" for name in names})
    with closing(RunFolder(folder).claim()):
        assert contents(folder).keys() == {".cadis-run", "checkpoint/lock"}


def test_killed_before_it_began_a_run_is_begun_by_the_same_command(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run").claim().close()
    done = refuse("run", "--resume", "--out", tmp_path / "run")
    assert "There is no run in the folder" in done
    assert "start it without resume" in done
    succeed("run", *QUICK, "--out", tmp_path / "run")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_second_run_does_not_touch_a_live_one(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "two")
    long = ["run", *QUICK[2:], "--rounds", "100000", "--out", str(folder.path)]
    with subprocess.Popen([sys.executable, "-m", "cadis", *long], stdout=subprocess.DEVNULL) as run:
        try:
            wait_until(lambda: is_locked(folder.checkpoint.lock_file), "the run is under way")
            wait_until((folder.path / "config.toml").exists, "it has begun")
            config = (folder.path / "config.toml").read_bytes()
            for second in (
                ["run", *QUICK, "--seed", 5, "--out", folder.path],
                ["run", "--resume", "--out", folder.path],
            ):
                sentence = refuse(*second)
                assert f"process {run.pid}" in sentence or "is not empty" in sentence
            assert (folder.path / "config.toml").read_bytes() == config
            wait_until(folder.has_rounds, "the first run goes on")
        finally:
            run.send_signal(signal.SIGKILL)
    rounds = [record.round for record in folder.read_history()]
    assert rounds == list(range(1, len(rounds) + 1))


def test_one_process_cannot_begin_the_same_run_twice(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with closing(folder.claim()):
        assert is_locked(folder.checkpoint.lock_file)
        with pytest.raises(CadisError, match=f"still going on, in process {os.getpid()}"):
            folder.claim()
        assert is_locked(folder.checkpoint.lock_file)
    assert not is_locked(folder.checkpoint.lock_file)


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_workers_end_with_their_run_in_the_middle_of_a_training(tmp_path: Path) -> None:
    options = ["--clients", "5", "--rounds", "1", "--epochs", "1000000", "--workers", "2"]
    with processes(tmp_path) as started:
        run = started.start("run", [sys.executable, "-m", "cadis", "run", *options, "--out", "run"])
        wait_until(lambda: len(started.alive()) == 3, "both workers are there")
        time.sleep(1)  # for them to begin
        run.kill()
        wait_until(lambda: not started.alive(), "nobody is left", seconds=5)


def test_a_summary_that_is_gone_is_told_and_written_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    succeed("run", *QUICK, "--out", folder.path)
    summary = folder.path / "summary.json"
    before = folder.read_json("summary.json")
    summary.unlink()
    done = refuse("report", folder.path)
    assert done == f"cadis: {summary} is missing; resume the run, and it is written again.\n"
    succeed("run", "--resume", "--out", folder.path)
    assert folder.read_json("summary.json")["confusion"] == before["confusion"]
