"""Wrong options are told by a check that does without torch, in the same words."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cadis.cli import commands
from cadis.experiment import preset_names

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
RIGHT = [
    ["run", "--rounds", "3", "--method", "fedprox", "--mu", "0.1"],
    ["compare", "--methods", "fedavg,ablations", "--seeds", "2"],
    ["sweep", "--grid", "threshold=0.5,0.9", "--grid", "lr=0.1"],
    *(["run", "--preset", name] for name in preset_names()),
]

CHECK = """
import contextlib, io, json, sys
from cadis.cli import commands
from cadis.cli.early import exit_code
found = []
for arguments in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = exit_code(commands, arguments)
    found.append([code, said.getvalue()])
import torch
assert not hasattr(torch, "__version__")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def without_torch() -> dict[str, tuple[int, str]]:
    """By command line, exit code and what is said when torch is not there."""
    cases = [*WRONG, *RIGHT]
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
    )
    found = map(tuple, json.loads(done.stdout))
    return dict(zip(map(" ".join, cases), found, strict=True))


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_options_are_told_in_the_usual_words(
    arguments: list[str],
    without_torch: dict[str, tuple[int, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    usual = CliRunner().invoke(commands, arguments, prog_name="cadis")
    assert without_torch[" ".join(arguments)] == (2, usual.stderr)
    assert usual.exit_code == 2
    assert usual.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", RIGHT, ids=" ".join)
def test_right_options_are_let_through(
    arguments: list[str], without_torch: dict[str, tuple[int, str]]
) -> None:
    assert without_torch[" ".join(arguments)] == (0, "")


def test_the_command_tells_once_and_ends(tmp_path: Path) -> None:
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
