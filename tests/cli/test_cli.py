"""``cadis run`` as a user types it, in a separate process if that matters."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cadis.experiment import resolve, run_experiment
from cli_support import refuse, succeed, to_options
from support import have_identical_models

QUICK = ["--rounds", "3", "--epochs", "1", "--per-round", "4", "--workers", "1"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cadis", *arguments]


def list_children(process: int) -> list[int]:
    return list(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))


def test_run_with_options_writes_results_and_figures(tmp_path: Path) -> None:
    result = succeed("run", *QUICK, "--out", str(tmp_path / "run"), "--threshold", "0.7")
    assert "round 3/3" in result
    assert "accuracy" in result
    assert "threshold = 0.7" in (tmp_path / "run" / "config.toml").read_text()
    figures = {path.stem for path in (tmp_path / "run" / "figures").glob("*.png")}
    assert {"accuracy", "confusion", "similarity", "clusters", "federation", "clients"} <= figures


def test_run_from_a_file_can_be_repeated_from_its_config(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(
        'method = "fedprox"\nrounds = 9\nepochs = 1\nper_round = 4\nworkers = 1\n'
        "[fedprox]\nmu = 0.2\n"
    )
    first, second = tmp_path / "first", tmp_path / "second"
    succeed("run", str(tmp_path / "e.toml"), "--rounds", "2", "--out", str(first))
    assert "mu = 0.2" in (first / "config.toml").read_text()
    assert "rounds = 2" in (first / "config.toml").read_text()
    succeed("run", str(first / "config.toml"), "--out", str(second))
    assert have_identical_models(first, second)


def test_default_folder_gets_a_number_if_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "fedavg-digits").mkdir(parents=True)
    succeed("run", *QUICK, "--method", "fedavg")
    assert (tmp_path / "runs" / "fedavg-digits-2" / "summary.json").exists()
    assert not list((tmp_path / "runs" / "fedavg-digits").iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_killed_and_resumed_run_ends_with_the_same_model(
    stop: signal.Signals, tmp_path: Path
) -> None:
    options = {"rounds": 8, "epochs": 1, "per_round": 4, "workers": 2}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run_experiment(resolve({}, options), whole)
    arguments = command("run", *to_options(options), "--out", str(cut))
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    history = cut / "history.jsonl"
    deadline = time.monotonic() + 120
    while not history.exists() or len(history.read_text().splitlines()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = list_children(process.pid)
    assert len(workers) == 2
    os.kill(process.pid, stop)
    message = process.communicate(timeout=60)[1].decode()
    if stop is signal.SIGINT:
        assert process.returncode == 130
        assert f"cadis run --resume --out {cut}" in message
    while any(Path(f"/proc/{worker}").exists() for worker in workers):  # no worker remains
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "Traceback" not in message
    assert not (cut / "summary.json").exists()
    succeed("run", "--resume", "--out", str(cut))
    assert have_identical_models(whole, cut)


def test_unwritable_folder_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refuse("run", *QUICK, "--out", str(tmp_path / "file" / "run"))


def test_help_does_not_import_torch() -> None:
    check = (
        "import sys; sys.argv = ['cadis', '--help']\n"
        "from cadis.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, check=True)
    assert b"Commands:" in result.stdout


def test_python_m_cadis_shows_the_version() -> None:
    result = subprocess.run(command("--version"), capture_output=True, check=True)
    assert result.stdout.startswith(b"cadis, version ")
