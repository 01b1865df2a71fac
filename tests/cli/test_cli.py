"""The command as a user types it, in a process of its own where that matters."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cadis.experiment import resolve, run_experiment
from cli_support import refuse, succeed, to_options
from support import same_models

QUICK = ["--rounds", "3", "--epochs", "1", "--per-round", "4", "--workers", "1"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cadis", *arguments]


def children_of(process: int) -> list[int]:
    return list(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))


def test_a_run_from_options(tmp_path: Path) -> None:
    result = succeed("run", *QUICK, "--out", str(tmp_path / "run"), "--threshold", "0.7")
    assert "round 3/3" in result
    assert "accuracy" in result
    assert "threshold = 0.7" in (tmp_path / "run" / "config.toml").read_text()
    drawn = {path.stem for path in (tmp_path / "run" / "figures").glob("*.png")}
    assert {"accuracy", "confusion", "similarity", "clusters", "federation", "clients"} <= drawn


def test_a_run_from_a_file_and_again_from_what_it_left(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(
        'method = "fedprox"\nrounds = 9\nepochs = 1\nper_round = 4\nworkers = 1\n'
        "[fedprox]\nmu = 0.2\n"
    )
    first, second = tmp_path / "first", tmp_path / "second"
    succeed("run", str(tmp_path / "e.toml"), "--rounds", "2", "--out", str(first))
    assert "mu = 0.2" in (first / "config.toml").read_text()
    assert "rounds = 2" in (first / "config.toml").read_text()
    succeed("run", str(first / "config.toml"), "--out", str(second))
    assert same_models(first, second)


def test_default_folders_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "fedavg-digits").mkdir(parents=True)
    succeed("run", *QUICK, "--method", "fedavg")
    assert (tmp_path / "runs" / "fedavg-digits-2" / "summary.json").exists()
    assert not list((tmp_path / "runs" / "fedavg-digits").iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_killed_and_resumed_it_ends_the_same(stop: signal.Signals, tmp_path: Path) -> None:
    options = {"rounds": 8, "epochs": 1, "per_round": 4, "workers": 2}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run_experiment(resolve({}, options), whole)
    typed = command("run", *to_options(options), "--out", str(cut))
    process = subprocess.Popen(typed, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    history = cut / "history.jsonl"
    deadline = time.monotonic() + 120
    while not history.exists() or len(history.read_text().splitlines()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = children_of(process.pid)
    assert len(workers) == 2
    os.kill(process.pid, stop)
    message = process.communicate(timeout=60)[1].decode()
    if stop is signal.SIGINT:
        assert process.returncode == 130
        assert f"cadis run --resume --out {cut}" in message
    while any(Path(f"/proc/{worker}").exists() for worker in workers):  # nobody is left behind
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "Traceback" not in message
    assert not (cut / "summary.json").exists()
    succeed("run", "--resume", "--out", str(cut))
    assert same_models(whole, cut)


def test_an_unwritable_folder_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refuse("run", *QUICK, "--out", str(tmp_path / "file" / "run"))


def test_top_help_does_not_wait_for_torch() -> None:
    check = (
        "import sys; sys.argv = ['cadis', '--help']\n"
        "from cadis.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, check=True)
    assert b"Commands:" in result.stdout


def test_module_and_version() -> None:
    result = subprocess.run(command("--version"), capture_output=True, check=True)
    assert result.stdout.startswith(b"cadis, version ")
