"""Every command that the documentation shows can be typed as it stands there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cadis.cli import commands
from fabricated import write_study

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    *(
        f"docs/{name}.md"
        for name in ("comparing", "figures", "predicting", "runs", "trackers", "tutorial")
    ),
]


def typed(page: str) -> list[list[str]]:
    """The commands in blocks and in lines of a page, without their comments."""
    text = (ROOT / page).read_text(encoding="utf-8")
    in_blocks = re.findall(r"^cadis .+$", text, re.MULTILINE)
    in_lines = re.findall(r"`(cadis [a-z]+ [^`]+)`", text)
    found = [shlex.split(line, comments=True)[1:] for line in [*in_blocks, *in_lines]]
    return [arguments for arguments in found if "..." not in " ".join(arguments)]


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_understood(page: str) -> None:
    shown = typed(page)
    assert shown
    for arguments in shown:
        name, *rest = arguments
        command: click.Command = commands.commands[name]
        while isinstance(command, click.Group) and rest:
            command = command.commands[rest.pop(0)]
        if rest != ["--help"]:
            command.make_context(name, list(rest))  # complains about what it does not know


def test_every_kind_of_figure_has_a_command() -> None:
    shown = {arguments[0] for arguments in typed("docs/figures.md")}
    assert shown == {"partition", "compare", "layer", "run", "sweep"}


def test_the_python_example_about_comparing(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    compared, read_again = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    write_study(tmp_path / "runs" / "compare-digits", {"fedavg": 0.6, "cadis": 0.9}, 2)
    first, result = (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, cwd=tmp_path, text=True
        )
        for code in (compared, read_again)
    )
    assert "Accuracy on the test set" in first.stdout
    assert result.stdout.startswith("CADIS ")
    assert "PairedTest(difference=" in result.stdout
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "figures" / "accuracy.pdf").exists()
