"""What docs/parts.md shows works as it stands there, and is complete."""

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cadis.algorithm.local_optimizers import LOCAL_OPTIMIZERS
from cadis.algorithm.methods import METHODS
from cadis.algorithm.samplers import SAMPLERS
from cadis.algorithm.server_optimizers import SERVER_OPTIMIZERS
from cadis.algorithm.tasks import TASKS
from cadis.algorithm.transforms import TRANSFORMS
from cadis.cli import commands
from cadis.store import RunFolder
from cadis.training.augmentation import AUGMENTATIONS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")
FILES = re.findall(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^(?:cadis|python) .+$", PAGE, re.MULTILINE)
QUICK = ["--rounds", "1", "--epochs", "1", "--workers", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all files of the page are, and its programs have run."""
    folder = tmp_path_factory.mktemp("page")
    for name, text in FILES:
        (folder / name).write_text(text)
    for command in COMMANDS:
        if command.startswith("python "):
            subprocess.run([sys.executable, *shlex.split(command)[1:]], check=True, cwd=folder)
    return folder


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("cadis ")])
def test_a_command_as_it_stands_but_for_a_single_round(
    command: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    arguments = [*shlex.split(command)[1:], *QUICK, "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 0, result.output
    assert len(RunFolder(tmp_path / "run").read_history()) == 1


def row_of(option: str) -> str:
    (row,) = re.findall(rf"^\|[^|]+\| `--{option}` \|([^\n]+)$", PAGE, re.MULTILINE)
    return str(row)


def described(name: str, part: type[Any]) -> str:
    """A part as the table has it: its name, its parameters and their defaults."""
    values = {field.name: field.default for field in fields(part)}
    parameters = ", ".join(
        f"`{key}` {value}" if isinstance(value, str) else f"`{key}` {value:g}"
        for key, value in values.items()
    )
    return f"`{name}` ({parameters})" if parameters else f"`{name}`"


@pytest.mark.parametrize(
    ("option", "registry"),
    [
        ("sampler", SAMPLERS),
        ("server-optimizer", SERVER_OPTIMIZERS),
        ("transforms", TRANSFORMS),
        ("task", TASKS),
        ("local-optimizer", LOCAL_OPTIMIZERS),
    ],
)
def test_all_parts_are_in_the_table(option: str, registry: Mapping[str, type[Any]]) -> None:
    everything = "; ".join(described(name, part) for name, part in registry.items())
    assert f" {everything} |" in row_of(option)


def test_all_methods_and_augmentations_are_in_the_table() -> None:
    for option, names in (("method", METHODS), ("augment", AUGMENTATIONS)):
        assert ", ".join(f"`{name}`" for name in names) in row_of(option)


def test_files_and_links_are_there() -> None:
    for place in re.findall(r"`(cadis/[\w/.]+)`", PAGE):
        assert (ROOT / "src" / place).exists(), place
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
