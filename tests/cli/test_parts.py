"""Parts of an algorithm and their parameters as options, including user-defined parts."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from safetensors.torch import load_file

from cadis._io import read_toml
from cadis.algorithm import KINDS, get_field_names
from cadis.cli.command_line import commands
from cadis.cli.options import find_user_parts
from cadis.experiment import PARTITION, qualify_parameter
from cadis.store import RunFolder, StudyFolder
from cli_support import call, succeed

QUICK = ["--rounds", "2", "--epochs", "1", "--clients", "8", "--per-round", "4", "--workers", "1"]


pytestmark = pytest.mark.usefixtures("here")


def parse(command: str, *arguments: str) -> dict[str, Any]:
    """Return the values of the options that are set."""
    context = commands.commands[command].make_context(command, list(arguments))
    return {name: value for name, value in context.params.items() if value is not None}


def split_sections(text: str) -> dict[str, str]:
    """Return the sections of a help text by title, each as one line."""
    sections = re.findall(r"^(\S.*):\n((?:  .*\n|\n)*)", text, re.MULTILINE)
    return {title: " ".join(lines.split()) for title, lines in sections}


@pytest.mark.parametrize("command", ["run", "compare", "sweep"])
def test_help_lists_every_part_and_parameter(command: str) -> None:
    text = succeed(command, "--help")
    for kind in (*KINDS.values(), PARTITION):
        for part in kind.registry.values():
            assert part.name in text or kind.key == "method"  # listed by "cadis methods"
            for field in get_field_names(part):
                assert f"--{field.replace('_', '-')} " in text
    for key in KINDS:
        assert (f"--{key.replace('_', '-')} " in text) == (command != "compare" or key != "method")


@pytest.mark.parametrize("command", ["run", "compare", "sweep"])
def test_every_parameter_has_an_option_with_the_name_of_its_part(command: str) -> None:
    arguments, expected = list[str](), dict[str, object]()
    for kind in (*KINDS.values(), PARTITION):
        for part in kind.registry.values():
            for field in fields(part):
                name = qualify_parameter(part, field.name)
                option, is_flag = name.replace("_", "-"), field.type is bool
                arguments += [f"--no-{option}"] if is_flag else [f"--{option}", "3"]
                expected[name] = False if is_flag else "3"
    assert parse(command, *arguments).items() >= expected.items()


def test_help_shows_the_docstring_of_a_user_defined_part() -> None:
    text = split_sections(call("run", "--method", "own.py:Mine", "--help").output)
    methods = text["Parameters of the methods"]
    _, mine = methods.split(" mine: ")
    assert "--parameter N an integer, described in two lines. [default: 1]" in mine
    assert "--mine-lr X lr [default: 2]" in mine  # --lr is another option
    assert "--levels N:N:... levels [default: 1:2]" in mine
    assert "--quick / --no-quick quick [default: on]" in mine
    assert "--momentum X" in mine
    assert "--mine-parameter" not in mine
    assert "sgd: --momentum X" in text["Parameters of the local optimizers"]
    sampler = split_sections(call("run", "--sampler=own.py:AllClients", "--help").output)
    assert "all-clients: --eagerness X of the clients." in sampler["Parameters of the samplers"]


@pytest.mark.parametrize("command", ["run", "compare", "sweep"])
def test_help_lists_a_shared_parameter_once_per_part(command: str) -> None:
    methods = split_sections(succeed(command, "--help"))["Parameters of the methods"]
    assert "cadis, cadis-paper: --signature profile|head " in methods
    assert " fedprox: --mu X " in methods
    assert " fedfa: --alpha X " in methods
    assert " feddyn: --alpha X " in methods
    assert "--fedfa-alpha" not in methods
    assert methods.count("--signature ") == 1


@pytest.mark.parametrize("arguments", [[], ["--method"], ["--grid"], ["--", "--method"], ["--"]])
def test_command_line_without_user_defined_parts(arguments: list[str]) -> None:
    assert find_user_parts(arguments) == []


def test_command_without_arguments_sets_no_option() -> None:
    assert {name for name, value in parse("run").items() if value} == set()


@pytest.mark.parametrize(
    ("command", "naming"),
    [
        ("run", ["--method", "own.py:Mine"]),
        ("run", ["--method=own.py:Mine"]),
        ("run", ["options.toml"]),
        ("run", ["--resume", "--out", "before"]),
        ("sweep", ["--grid", "method=fedavg,own.py:Mine"]),
        ("sweep", ["--grid=method=own.py:Mine"]),
        ("compare", ["--methods", "fedavg,own.py:Mine"]),
        ("compare", ["--methods=own.py:Mine,cadis"]),
    ],
)
def test_parameters_of_a_user_defined_part_are_options(
    command: str, naming: list[str], here: Path
) -> None:
    (here / "before").mkdir()
    for path in (here / "options.toml", here / "before" / "config.toml"):
        path.write_text('method = "own.py:Mine"\n')
    values = parse(command, *naming, "--parameter", "3", "--mine-levels=4:5", "--no-quick")
    assert (values["parameter"], values["mine_levels"], values["quick"]) == ("3", "4:5", False)
    with pytest.raises(click.NoSuchOption):
        parse(command, "--parameter", "3")


def test_run_with_user_defined_parts_can_be_resumed(here: Path) -> None:
    parts = [
        "--method",
        "own.py:Mine",
        "--sampler",
        "own.py:AllClients",
        "--transforms=own.py:Halve",
    ]
    arguments = [*parts, "--parameter", "3", "--sgd-momentum", "0.5", "--half", "0.25"]
    succeed("run", *QUICK[:-1], "2", *arguments)
    folder = here / "runs" / "mine-digits"
    options = read_toml(folder / "config.toml")
    assert options["method"] == "own.py:Mine"
    assert options["mine"]["parameter"] == 3
    assert options["sgd"]["momentum"] == 0.5
    assert options["halve"] == {"half": 0.25}
    succeed("run", "--resume", "--out", str(folder), "--rounds", "3")
    assert len(RunFolder(folder).read_history()) == 3


def test_comparison_and_sweep_of_a_user_defined_method(here: Path) -> None:
    arguments = ["--methods", "fedavg,own.py:Mine", "--seeds", "1", "--mine-parameter", "3"]
    succeed("compare", *QUICK, *arguments, "--out", "both")
    fedavg, mine = StudyFolder(here / "both").read().variants
    assert (mine.name, mine.label, fedavg.label) == ("mine", "Mine", "FedAvg")
    assert mine.options["mine"]["parameter"] == 3
    models = [here / "both" / v.name / "seed-0" / "model.safetensors" for v in (fedavg, mine)]
    first, second = map(load_file, models)  # Mine is FedAvg under another name
    assert all(torch.equal(first[name], second[name]) for name in (*first, *second))
    grid = ["--method", "own.py:Mine", "--grid", "mine-parameter=1,2"]
    succeed("sweep", *QUICK, *grid, "--out", "grid")
    cells = [
        variant.options["mine"]["parameter"]
        for variant in StudyFolder(here / "grid").read().variants
    ]
    assert cells == [1, 2]
