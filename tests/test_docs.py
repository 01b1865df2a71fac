"""Tests of the README and of the pages in docs: what they show runs, and they are complete."""

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
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
README = PAGES["README.md"]
PARTS = PAGES["docs/how-to/parts.md"]
OWN_CODE = ("docs/how-to/method.md", "docs/how-to/own-part.md")
METHOD = "\n".join(PAGES[page] for page in OWN_CODE)
PREDICT, COMPARE = PAGES["docs/how-to/predict.md"], PAGES["docs/how-to/compare.md"]
TABLES, PARTITIONS = PAGES["docs/how-to/tables.md"], PAGES["docs/how-to/partitions.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUICK = ["--rounds", "1", "--epochs", "1", "--workers", "1"]


def list_commands(text: str) -> list[str]:
    """Return the lines of a page that run a command."""
    return re.findall(r"^(?:cadis|python) .+$", text, re.MULTILINE)


@pytest.fixture(autouse=True)
def _isolate_cache_and_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))


def run_python(folder: Path, *arguments: str) -> str:
    """Run Python in a folder; return its output."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_cadis(folder: Path, *arguments: str) -> str:
    """Run a command in a folder, in this process; return its output."""
    with contextlib.chdir(folder):
        return succeed(*arguments)


def run_blocks(text: str, folder: Path, quick: Sequence[str] = ()) -> list[str]:
    """Write the files of a page and run its commands in order; return their outputs.

    ``quick`` is added to the commands that have ``--rounds``.
    """
    outputs = []
    for language, block in BLOCK.findall(text):
        first, *lines = block.splitlines()
        if language == "python":
            (folder / first.removeprefix("# ")).write_text("\n".join(lines))
            continue
        for line in [first, *lines]:
            program, *arguments = shlex.split(line, comments=True) or [""]
            if program == "cadis":
                further = quick if "--rounds" in arguments else []
                outputs.append(run_cadis(folder, *arguments, *further))
            elif program == "python":
                outputs.append(run_python(folder, *arguments))
    return outputs


def get_block(text: str, file: str) -> str:
    """Return the block of a page that begins with the name of a file."""
    (code,) = (block for _, block in BLOCK.findall(text) if block.startswith(f"# {file}\n"))
    return str(code)


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 130


def test_example_of_the_readme_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) < 10
    accuracy, _, clusters = run_python(tmp_path, "-c", code).partition(" ")
    assert float(accuracy) > 0.5
    assert clusters == "[0, 0, 0, 0, 0, 0, 0, 1, 1, 1]\n"


@pytest.mark.parametrize("name", ["images", "tables", "python-data", "partitions", "model"])
def test_pages_about_data_and_models_run(name: str, tmp_path: Path) -> None:
    assert run_blocks(PAGES[f"docs/how-to/{name}.md"], tmp_path, ["--rounds", "2"])


def test_page_about_resuming_runs(tmp_path: Path) -> None:
    assert len(run_blocks(PAGES["docs/how-to/resume.md"], tmp_path)) == 3
    assert len(RunFolder(tmp_path / "runs" / "mine").read_history()) == 8


def test_tutorial_runs_with_fewer_rounds(tmp_path: Path) -> None:
    tutorial = PAGES["docs/tutorials/first-federation.md"]
    outputs = run_blocks(tutorial, tmp_path, ["--rounds", "1", "--epochs", "1"])
    assert len(outputs) == 5
    assert outputs[-1] == "[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]\n"
    for named in ("runs/cadis-digits/figures/similarity.png", "runs/fruits/report.html"):
        assert (tmp_path / named).exists(), named


def test_examples_of_partitions_run(tmp_path: Path) -> None:
    clusters, classes = (
        run_python(tmp_path, "-c", get_block(PARTITIONS, file))
        for file in ("split.py", "flower.py")
    )
    assert clusters == "[0, 0, 0, 0, 0, 0, 1, 1]\n"
    first, *others = re.findall(r"\[\d, \d\]", classes)
    assert others == [first] * 3 + [others[-1]] * 2
    assert first != others[-1]


def test_sizes_of_models_are_correct() -> None:
    shapes = {"small-cnn": (1, 8, 8, 10), "mlp": (1, 28, 28, 10), "cnn": (1, 28, 28, 10)}
    shapes |= {"resnet9": (3, 32, 32, 10), "resnet18": (3, 224, 224, 15)}
    for name, build in MODELS.items():
        size = sum(p.numel() for p in build(*shapes[name]).parameters())
        assert f"| `{name}` | {size:,} " in PAGES["docs/reference/datasets.md"]


def test_page_about_predictions_runs(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    draw_digits(tmp_path / "pictures", 60)
    run_python(tmp_path, "-c", get_block(TABLES, "cohort.py"))
    outputs = {}
    for language, block in BLOCK.findall(PREDICT):
        first, *lines = block.splitlines()
        if language == "python":
            outputs[first] = run_python(tmp_path, "-c", "\n".join(lines))
            continue
        for program, *arguments in (shlex.split(line, comments=True) for line in [first, *lines]):
            if program == "cadis":
                run_cadis(tmp_path, *arguments)
    assert outputs["# use.py"].startswith("Predictor(small-cnn, 13,706 parameters: ")
    assert outputs["# elsewhere.py"].strip() in map(str, range(10))
    predictions = cadis.load(tmp_path / "runs" / "cohort").predict(tmp_path / "cohort.csv")
    assert outputs["# rows.py"].split() == [prediction.label for prediction in predictions]
    assert len({*outputs["# rows.py"].split()}) == 2
    header = (tmp_path / "digits.csv").read_text().splitlines()[0]
    assert header in PREDICT
    assert (tmp_path / "runs" / "digits" / "MODEL_CARD.md").exists()


def test_examples_about_comparing_run(tmp_path: Path) -> None:
    compare, read_again = re.findall(r"```python\n(.*?)```", COMPARE, re.DOTALL)
    write_study(tmp_path / "runs" / "compare-digits", {"fedavg": 0.6, "cadis": 0.9}, 2)
    assert "Accuracy on the test set" in run_python(tmp_path, "-c", compare)
    output = run_python(tmp_path, "-c", read_again)
    assert output.startswith("CADIS ")
    assert "PairedTest(difference=" in output
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "figures" / "accuracy.pdf").exists()


@pytest.fixture(scope="module")
def parts_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all files of the pages about parts, after their programs have run."""
    folder = tmp_path_factory.mktemp("page")
    files = r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$"
    for name, text in re.findall(files, PARTS + METHOD, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(text)
    for command in list_commands(PARTS):
        if command.startswith("python "):
            run_python(folder, *shlex.split(command)[1:])
    return folder


@pytest.mark.parametrize(
    "command", [line for line in list_commands(PARTS + METHOD) if line.startswith("cadis run ")]
)
def test_commands_about_parts_run_one_round(
    command: str, parts_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(parts_folder)
    succeed(*shlex.split(command)[1:], *QUICK, "--out", tmp_path / "run")
    assert len(RunFolder(tmp_path / "run").read_history()) == 1


@pytest.mark.parametrize(
    "command", [line for line in list_commands(METHOD) if line.startswith("cadis compare ")]
)
def test_own_method_is_compared_with_others(
    command: str, parts_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(parts_folder)
    output = succeed(*shlex.split(command)[1:], *QUICK, "--out", tmp_path / "study")
    assert (tmp_path / "study" / "near").is_dir()
    is_same = "Near gave exactly the same accuracy and loss as FedAvg in every round." in output
    assert is_same == ("--pull 0 " in command)


def get_row(option: str) -> str:
    (row,) = re.findall(rf"^\|[^|]+\| `--{option}` \|([^\n]+)$", PARTS, re.MULTILINE)
    return str(row)


def describe_part(name: str, part: type[Any]) -> str:
    """Return the entry of a part in the table: its name, its parameters and their defaults."""
    values = {field.name: field.default for field in fields(part)}
    parameters = ", ".join(
        f"`{key}` {value}" if isinstance(value, str) else f"`{key}` {value:g}"
        for key, value in values.items()
    )
    return f"`{name}` ({parameters})" if parameters else f"`{name}`"


@pytest.mark.parametrize("key", [key for key in KINDS if key != "method"])
def test_all_parts_are_documented(key: str) -> None:
    registry: Mapping[str, type[Any]] = KINDS[key].registry
    entries = "; ".join(describe_part(name, part) for name, part in registry.items())
    assert f" {entries} |" in get_row(key.replace("_", "-"))


def test_all_methods_and_augmentations_are_documented() -> None:
    for option, names in (("method", KINDS["method"].registry), ("augment", AUGMENTATIONS)):
        assert ", ".join(f"`{name}`" for name in names) in get_row(option)


@pytest.mark.parametrize("page", PAGES)
def test_linked_files_exist(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)[^):\s]*\)", PAGES[page]):
        assert ((ROOT / page).parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_named_files_of_the_package_exist(page: str) -> None:
    for path in re.findall(r"`(?:src/)?(cadis/[\w/.]+)`", PAGES[page]):
        assert (ROOT / "src" / path).exists(), path


def parse_commands(page: str) -> list[list[str]]:
    """Return the arguments of the commands in blocks and lines of a page."""
    in_blocks = re.findall(r"^cadis .+$", PAGES[page], re.MULTILINE)
    in_lines = re.findall(r"`(cadis [a-z]+ [^`]+)`", PAGES[page])
    arguments = [shlex.split(line, comments=True)[1:] for line in [*in_blocks, *in_lines]]
    return [words for words in arguments if "..." not in " ".join(words)]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in OWN_CODE and parse_commands(page)]
)
def test_documented_commands_are_valid(page: str) -> None:
    for name, *rest in parse_commands(page):
        command: click.Command = commands.commands[name]
        while isinstance(command, click.Group) and rest:
            command = command.commands[rest.pop(0)]
        if rest != ["--help"]:
            command.make_context(name, list(rest))  # raises an error for unknown options


def test_every_kind_of_figure_is_documented() -> None:
    shown = {arguments[0] for arguments in parse_commands("docs/how-to/figures.md")}
    assert shown == {"partition", "compare", "layer", "run", "sweep"}
