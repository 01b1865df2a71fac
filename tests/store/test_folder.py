"""A user's files are never touched, and only one process works on a run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cadis.cli import commands
from cadis.errors import CadisError
from cadis.store import RunFolder, is_locked
from processes import processes, wait_until

QUICK = ["--rounds", "1", "--clients", "5", "--epochs", "1", "--workers", "1", "--model", "mlp"]


def cadis(*arguments: object) -> Result:
    return CliRunner().invoke(commands, list(map(str, arguments)))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def a_folder_of_the_users(folder: Path) -> None:
    (folder / "config.toml").write_text('title = "x"')
    (folder / "thesis.md").write_text("precious")


def a_users_options(folder: Path) -> None:
    (folder / "config.toml").write_text('title = "x"')


def a_finished_run_that_lost_its_history(folder: Path) -> None:
    RunFolder(folder).claim().close()
    for name in ("config.toml", "federation.json", "summary.json", "model.safetensors"):
        (folder / name).write_text("days of work")
    (folder / "history.jsonl").write_text("")


def a_begun_run_with_a_users_notes(folder: Path) -> None:
    RunFolder(folder).claim().close()
    (folder / "config.toml").write_text("rounds = 3")
    (folder / "checkpoint" / "notes.txt").write_text("precious")


def a_begun_run_whose_options_are_elsewhere(folder: Path) -> None:
    RunFolder(folder).claim().close()
    (folder.parent / "options.toml").write_text("rounds = 3")
    (folder / "config.toml").symlink_to(folder.parent / "options.toml")


def a_run_with_rounds(folder: Path) -> None:
    RunFolder(folder).claim().close()
    (folder / "history.jsonl").write_text('{"round": 1}\n')


def a_run_without_our_mark(folder: Path) -> None:
    RunFolder(folder).claim().close()
    (folder / "config.toml").write_text("rounds = 3")
    (folder / ".cadis-run").unlink()


def a_hidden_file(folder: Path) -> None:
    (folder / ".important").write_text("precious")


def a_users_checkpoint(folder: Path) -> None:
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "lock").write_text("the combination of my bicycle")


@pytest.mark.parametrize(
    "fill",
    [
        a_folder_of_the_users,
        a_users_options,
        a_finished_run_that_lost_its_history,
        a_begun_run_with_a_users_notes,
        a_begun_run_whose_options_are_elsewhere,
        a_run_with_rounds,
        a_run_without_our_mark,
        a_hidden_file,
        a_users_checkpoint,
    ],
)
def test_what_is_not_ours_to_remove_stays(fill: Callable[[Path], None], tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    fill(folder)
    before = contents(tmp_path)
    with pytest.raises(CadisError, match="choose another"):
        RunFolder(folder).claim()
    assert contents(tmp_path) == before


def test_the_command_refuses_a_users_folder(tmp_path: Path) -> None:
    a_folder_of_the_users(tmp_path)
    before = contents(tmp_path)
    done = cadis("run", *QUICK, "--out", tmp_path)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"cadis: The folder {tmp_path} is not empty; choose another")
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
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("" if name.endswith("lock") else "half-written")
    with closing(RunFolder(folder).claim()):
        assert contents(folder).keys() == {".cadis-run", "checkpoint/lock"}


def test_killed_before_it_began_a_run_is_begun_by_the_same_command(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run").claim().close()
    done = cadis("run", "--resume", "--out", tmp_path / "run")
    assert done.exit_code == 2
    assert "There is no run in the folder" in done.stderr
    assert "start it without resume" in done.stderr
    assert cadis("run", *QUICK, "--out", tmp_path / "run").exit_code == 0


def test_killed_before_who_has_what_is_written_a_run_is_resumed(tmp_path: Path) -> None:
    assert cadis("run", *QUICK, "--out", tmp_path / "run").exit_code == 0
    folder, begun = tmp_path / "run", tmp_path / "begun"
    RunFolder(begun).claim().close()
    (begun / "config.toml").write_bytes((folder / "config.toml").read_bytes())
    done = cadis("run", "--resume", "--out", begun)
    assert done.exit_code == 0, done.stderr
    name = "model.safetensors"
    assert (begun / name).read_bytes() == (folder / name).read_bytes()


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
                done = cadis(*second)
                assert done.exit_code == 2
                assert f"process {run.pid}" in done.stderr or "is not empty" in done.stderr
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
    assert cadis("run", *QUICK, "--out", folder.path).exit_code == 0
    summary = folder.path / "summary.json"
    before = folder.read_json("summary.json")
    summary.unlink()
    done = cadis("report", folder.path)
    assert done.exit_code == 2
    assert done.stderr == f"cadis: {summary} is missing; resume the run, and it is written again.\n"
    assert cadis("run", "--resume", "--out", folder.path).exit_code == 0
    assert folder.read_json("summary.json")["confusion"] == before["confusion"]
