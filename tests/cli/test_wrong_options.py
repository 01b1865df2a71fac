"""Wrong options end a command with one sentence and exit code 2, before anything is written."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cadis.cli import commands

WRONG = [
    ["run", "--epochs", "x"],
    ["run", "--methd", "cadis"],
    ["run", "--method", "nonsense"],
    ["run", "--lr", "abc"],
    ["run", "--threshold", "2"],
    ["run", "--method", "fedavg", "--threshold", "0.5"],
    ["run", "--dataset", "nothing"],
    ["run", "--model", "nothing"],
    ["run", "--transforms", "clip", "--max-norm", "-1"],
    ["run", "--preset", "nothing"],
    ["run", "--eval-every", "0"],
    ["run", "--augment", "flop"],
    ["run", "--seed"],
    ["compare", "--methods", "cadis,nothing"],
    ["compare", "--methods", "cadis", "--targets", "3"],
    ["compare", "--seeds", "0"],
    ["sweep", "--grid", "nothing=1"],
    ["sweep", "--grid", "threshold=0.5,2"],
]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_options_are_refused(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(commands, arguments, prog_name="cadis")
    assert result.exit_code == 2
    assert result.stderr
    assert not list(tmp_path.iterdir())


def test_the_command_prints_one_sentence(tmp_path: Path) -> None:
    for arguments in (["--epochs", "x"], ["--method", "nothing.py:Mine"]):
        done = subprocess.run(
            [sys.executable, "-m", "cadis", "run", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("cadis: ")
