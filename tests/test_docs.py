"""What docs/data.md and docs/tutorial.md show works as it stands there."""

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE

import pytest

from cadis.models import MODELS

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "data.md").read_text(encoding="utf-8")
TUTORIAL = (DOCS / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


SHOWN = ["Your own pictures", "Your own tables", "Data from Python", "Partitions", "Your own model"]


@pytest.mark.parametrize("title", SHOWN)
def test_a_section_as_it_stands(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert run_blocks(SECTIONS[title], tmp_path)


def run_blocks(text: str, folder: Path, quick: Sequence[str] = ()) -> list[str]:
    """Write the files of a text and run its commands, in order; what each of them printed.

    ``quick`` goes to the commands that take rounds.
    """
    printed = []
    for language, block in BLOCK.findall(text):
        first, *lines = block.splitlines()
        if language == "python":
            (folder / first.removeprefix("# ")).write_text("\n".join(lines))
            continue
        for line in [first, *lines]:
            program, *arguments = shlex.split(line, comments=True)
            if program in ("cadis", "python"):
                command = ["-m", "cadis", *arguments] if program == "cadis" else arguments
                command += quick if "--rounds" in arguments else []
                done = subprocess.run(
                    [sys.executable, *command], check=True, cwd=folder, stdout=PIPE, text=True
                )
                printed.append(done.stdout)
    return printed


def test_the_tutorial_but_for_fewer_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    printed = run_blocks(TUTORIAL, tmp_path, ["--rounds", "1", "--epochs", "1"])
    assert len(printed) == 5
    assert printed[-1] == "[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]\n"
    for named in ("runs/cadis-digits/figures/similarity.png", "runs/fruits/report.html"):
        assert (tmp_path / named).exists(), named


def output_of(file: str, folder: Path) -> str:
    """What a Python example among the partitions prints."""
    blocks = BLOCK.findall(SECTIONS["Partitions"])
    (code,) = (block for _, block in blocks if block.startswith(f"# {file}\n"))
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, cwd=folder, capture_output=True, text=True).stdout


def test_the_python_example(tmp_path: Path) -> None:
    assert output_of("deal.py", tmp_path) == "[0, 0, 0, 0, 0, 0, 1, 1]\n"


def test_the_flower_example(tmp_path: Path) -> None:
    shown = output_of("flower.py", tmp_path)
    first, *others = re.findall(r"\[\d, \d\]", shown)
    assert others == [first] * 3 + [others[-1]] * 2
    assert first != others[-1]


def test_sizes_of_the_models() -> None:
    shapes = {"small-cnn": (1, 8, 8, 10), "mlp": (1, 28, 28, 10), "cnn": (1, 28, 28, 10)}
    shapes |= {"resnet9": (3, 32, 32, 10), "resnet18": (3, 224, 224, 15)}
    for name, build in MODELS.items():
        size = sum(p.numel() for p in build(*shapes[name]).parameters())
        assert f"| `{name}` | {size:,} " in SECTIONS["Models"]
