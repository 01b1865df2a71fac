"""What the README and the pages in docs show works as it stands there, and is complete."""

import contextlib
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

import cadis
from cadis.algorithm import KINDS
from cadis.cli.command_line import commands
from cadis.models import MODELS
from cadis.store import RunFolder
from cadis.training import AUGMENTATIONS
from cli_support import succeed
from fabricated import write_study
from support import draw_digits

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DATA, PARTS, PREDICTING, TUTORIAL, COMPARING = (
    (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("data", "parts", "predicting", "tutorial", "comparing")
)
PAGES = ("comparing", "figures", "predicting", "runs", "trackers", "tutorial")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", DATA, re.MULTILINE | re.DOTALL))
SHOWN = ["Your own pictures", "Your own tables", "Data from Python", "Partitions", "Your own model"]
COMMANDS = re.findall(r"^(?:cadis|python) .+$", PARTS, re.MULTILINE)
QUICK = ["--rounds", "1", "--epochs", "1", "--workers", "1"]


@pytest.fixture(autouse=True)
def _own_cache_and_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))


def run_python(folder: Path, *arguments: str) -> str:
    """Run Python in a folder; return what it printed."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_cadis(folder: Path, *arguments: str) -> str:
    """Run a command in a folder, in this process; return what it said."""
    with contextlib.chdir(folder):
        return succeed(*arguments)


def run_blocks(text: str, folder: Path, quick: Sequence[str] = ()) -> list[str]:
    """Write the files of a text and run its commands, in order; return what each printed.

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
            if program == "cadis":
                further = quick if "--rounds" in arguments else []
                printed.append(run_cadis(folder, *arguments, *further))
            elif program == "python":
                printed.append(run_python(folder, *arguments))
    return printed


def block_of(text: str, file: str) -> str:
    """Return the block of a page that begins with the name of a file."""
    (code,) = (block for _, block in BLOCK.findall(text) if block.startswith(f"# {file}\n"))
    return str(code)


def links_of(text: str) -> list[str]:
    return re.findall(r"\]\(([^)#:]+)\)", text)


def test_the_example_of_the_readme(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) < 10
    accuracy, _, clusters = run_python(tmp_path, "-c", code).partition(" ")
    assert float(accuracy) > 0.5
    assert clusters == "[0, 0, 0, 0, 0, 0, 0, 1, 1, 1]\n"


@pytest.mark.parametrize("title", SHOWN)
def test_a_section_about_data_as_it_stands(title: str, tmp_path: Path) -> None:
    assert run_blocks(SECTIONS[title], tmp_path)


def test_the_tutorial_but_for_fewer_rounds(tmp_path: Path) -> None:
    printed = run_blocks(TUTORIAL, tmp_path, ["--rounds", "1", "--epochs", "1"])
    assert len(printed) == 5
    assert printed[-1] == "[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]\n"
    for named in ("runs/cadis-digits/figures/similarity.png", "runs/fruits/report.html"):
        assert (tmp_path / named).exists(), named


def test_the_examples_of_partitions(tmp_path: Path) -> None:
    dealt, shown = (
        run_python(tmp_path, "-c", block_of(SECTIONS["Partitions"], file))
        for file in ("deal.py", "flower.py")
    )
    assert dealt == "[0, 0, 0, 0, 0, 0, 1, 1]\n"
    first, *others = re.findall(r"\[\d, \d\]", shown)
    assert others == [first] * 3 + [others[-1]] * 2
    assert first != others[-1]


def test_sizes_of_the_models() -> None:
    shapes = {"small-cnn": (1, 8, 8, 10), "mlp": (1, 28, 28, 10), "cnn": (1, 28, 28, 10)}
    shapes |= {"resnet9": (3, 32, 32, 10), "resnet18": (3, 224, 224, 15)}
    for name, build in MODELS.items():
        size = sum(p.numel() for p in build(*shapes[name]).parameters())
        assert f"| `{name}` | {size:,} " in SECTIONS["Models"]


def test_predicting_as_it_stands(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    draw_digits(tmp_path / "pictures", 60)
    run_python(tmp_path, "-c", block_of(DATA, "cohort.py"))
    said = {}
    for language, block in BLOCK.findall(PREDICTING):
        first, *lines = block.splitlines()
        if language == "python":
            said[first] = run_python(tmp_path, "-c", "\n".join(lines))
            continue
        for program, *arguments in (shlex.split(line, comments=True) for line in [first, *lines]):
            if program == "cadis":
                run_cadis(tmp_path, *arguments)
    assert said["# use.py"].startswith("Predictor(small-cnn, 13,706 parameters: pictures of 1 x 8")
    assert said["# elsewhere.py"].strip() in map(str, range(10))
    told = cadis.load(tmp_path / "runs" / "cohort").predict(tmp_path / "cohort.csv")
    assert said["# rows.py"].split() == [prediction.label for prediction in told]
    assert len({*said["# rows.py"].split()}) == 2
    header = (tmp_path / "digits.csv").read_text().splitlines()[0]
    assert header in PREDICTING
    assert (tmp_path / "runs" / "digits" / "MODEL_CARD.md").exists()


def test_the_example_about_comparing(tmp_path: Path) -> None:
    compared, read_again = re.findall(r"```python\n(.*?)```", COMPARING, re.DOTALL)
    write_study(tmp_path / "runs" / "compare-digits", {"fedavg": 0.6, "cadis": 0.9}, 2)
    assert "Accuracy on the test set" in run_python(tmp_path, "-c", compared)
    printed = run_python(tmp_path, "-c", read_again)
    assert printed.startswith("CADIS ")
    assert "PairedTest(difference=" in printed
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "figures" / "accuracy.pdf").exists()


@pytest.fixture(scope="module")
def parts_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all files of the page of parts, whose programs have run."""
    folder = tmp_path_factory.mktemp("page")
    files = r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$"
    for name, text in re.findall(files, PARTS, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(text)
    for command in COMMANDS:
        if command.startswith("python "):
            run_python(folder, *shlex.split(command)[1:])
    return folder


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("cadis ")])
def test_a_command_about_parts_but_for_a_single_round(
    command: str, parts_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(parts_folder)
    succeed(*shlex.split(command)[1:], *QUICK, "--out", tmp_path / "run")
    assert len(RunFolder(tmp_path / "run").read_history()) == 1


def row_of(option: str) -> str:
    (row,) = re.findall(rf"^\|[^|]+\| `--{option}` \|([^\n]+)$", PARTS, re.MULTILINE)
    return str(row)


def described(name: str, part: type[Any]) -> str:
    """Return a part as the table has it: its name, its parameters and their defaults."""
    values = {field.name: field.default for field in fields(part)}
    parameters = ", ".join(
        f"`{key}` {value}" if isinstance(value, str) else f"`{key}` {value:g}"
        for key, value in values.items()
    )
    return f"`{name}` ({parameters})" if parameters else f"`{name}`"


@pytest.mark.parametrize("key", [key for key in KINDS if key != "method"])
def test_all_parts_are_in_the_table(key: str) -> None:
    registry: Mapping[str, type[Any]] = KINDS[key].registry
    everything = "; ".join(described(name, part) for name, part in registry.items())
    assert f" {everything} |" in row_of(key.replace("_", "-"))


def test_all_methods_and_augmentations_are_in_the_table() -> None:
    for option, names in (("method", KINDS["method"].registry), ("augment", AUGMENTATIONS)):
        assert ", ".join(f"`{name}`" for name in names) in row_of(option)


def test_files_and_links_are_there() -> None:
    for place in re.findall(r"`(cadis/[\w/.]+)`", PARTS):
        assert (ROOT / "src" / place).exists(), place
    for folder, text in ((ROOT / "docs", PARTS), (ROOT, README)):
        for target in links_of(text):
            assert (folder / target).exists(), target


def typed_on(page: str) -> list[list[str]]:
    """Return the commands in blocks and in lines of a page, without their comments."""
    text = (ROOT / page).read_text(encoding="utf-8")
    in_blocks = re.findall(r"^cadis .+$", text, re.MULTILINE)
    in_lines = re.findall(r"`(cadis [a-z]+ [^`]+)`", text)
    found = [shlex.split(line, comments=True)[1:] for line in [*in_blocks, *in_lines]]
    return [arguments for arguments in found if "..." not in " ".join(arguments)]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{name}.md" for name in PAGES)])
def test_commands_are_understood(page: str) -> None:
    shown = typed_on(page)
    assert shown
    for name, *rest in shown:
        command: click.Command = commands.commands[name]
        while isinstance(command, click.Group) and rest:
            command = command.commands[rest.pop(0)]
        if rest != ["--help"]:
            command.make_context(name, list(rest))  # complains about what it does not know


def test_every_kind_of_figure_has_a_command() -> None:
    shown = {arguments[0] for arguments in typed_on("docs/figures.md")}
    assert shown == {"partition", "compare", "layer", "run", "sweep"}
