"""Parts of an algorithm on the command line, those of a user's own file included."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from safetensors.torch import load_file

from cadis._io import read_toml
from cadis.algorithm import KINDS, names_of
from cadis.cli.command_line import commands
from cadis.cli.options import parts_in
from cadis.experiment import PARTITION, qualified
from cadis.store import RunFolder, StudyFolder
from cli_support import call, succeed

QUICK = ["--rounds", "2", "--epochs", "1", "--clients", "8", "--per-round", "4", "--workers", "1"]


pytestmark = pytest.mark.usefixtures("here")


def parsed(command: str, *arguments: str) -> dict[str, Any]:
    """The options that were given, as the command gets them."""
    context = commands.commands[command].make_context(command, list(arguments))
    return {name: value for name, value in context.params.items() if value is not None}


def sections(text: str) -> dict[str, str]:
    """The sections of a help text, each in one line."""
    found = re.findall(r"^(\S.*):\n((?:  .*\n|\n)*)", text, re.MULTILINE)
    return {title: " ".join(lines.split()) for title, lines in found}


@pytest.mark.parametrize("command", ["run", "compare", "sweep"])
def test_help_lists_every_part_and_parameter(command: str) -> None:
    text = succeed(command, "--help")
    for kind in (*KINDS.values(), PARTITION):
        for part in kind.registry.values():
            assert part.name in text or (command, kind.key) == ("compare", "method")
            for field in names_of(part):
                assert f"--{field.replace('_', '-')} " in text
    for key in KINDS:
        assert (f"--{key.replace('_', '-')} " in text) == (command != "compare" or key != "method")


@pytest.mark.parametrize("command", ["run", "compare", "sweep"])
def test_every_parameter_is_an_option_with_the_name_of_its_part(command: str) -> None:
    typed, expected = list[str](), dict[str, object]()
    for kind in (*KINDS.values(), PARTITION):
        for part in kind.registry.values():
            for field in fields(part):
                name = qualified(part, field.name)
                option, is_flag = name.replace("_", "-"), field.type is bool
                typed += [f"--no-{option}"] if is_flag else [f"--{option}", "3"]
                expected[name] = False if is_flag else "3"
    assert parsed(command, *typed).items() >= expected.items()


def test_help_has_the_parameters_of_a_users_own_part_in_its_words() -> None:
    text = sections(call("run", "--method", "own.py:Mine", "--help").output)
    methods = text["Parameters of the methods"]
    assert "--parameter N mine: how much of it there is, in all. [default: 1]" in methods
    assert "--mine-lr X mine: lr [default: 2.0]" in methods  # --lr is another option
    assert "--levels N:N:... mine: levels [default: 1:2]" in methods
    assert "--quick / --no-quick mine: quick [default: True]" in methods
    assert "--mine-momentum X mine: of what comes after." in methods  # SGD has one, too
    assert "--sgd-momentum X" in text["Parameters of the local optimizers"]
    assert "--mine-parameter" not in methods  # it is an option, but there is no need for it
    assert "--sgd-momentum" not in succeed("run", "--help")
    sampler = sections(call("run", "--sampler=own.py:Everybody", "--help").output)
    assert "--eagerness X everybody: of the clients." in sampler["Parameters of the samplers"]


def test_a_comparison_says_how_to_tell_methods_apart() -> None:
    methods = sections(call("compare", "--help").output)["Parameters of the methods"]
    assert "--fedfa-alpha X fedfa: weight of the accuracy information." in methods
    assert "--feddyn-alpha X" in methods
    assert "--fedat-tiers" not in methods
    assert "--fedfa-alpha" not in succeed("run", "--help")


@pytest.mark.parametrize("arguments", [[], ["--method"], ["--grid"], ["--", "--method"], ["--"]])
def test_command_lines_that_name_nothing(arguments: list[str]) -> None:
    assert parts_in(arguments) == []


def test_no_arguments_are_a_command_line_too() -> None:
    assert {name for name, value in parsed("run").items() if value} == set()


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
def test_parameters_of_a_users_own_part_are_options(
    command: str, naming: list[str], here: Path
) -> None:
    (here / "before").mkdir()
    for path in (here / "options.toml", here / "before" / "config.toml"):
        path.write_text('method = "own.py:Mine"\n')
    given = parsed(command, *naming, "--parameter", "3", "--mine-levels=4:5", "--no-quick")
    assert (given["parameter"], given["mine_levels"], given["quick"]) == ("3", "4:5", False)
    with pytest.raises(click.NoSuchOption):
        parsed(command, "--parameter", "3")


def test_a_run_of_a_users_own_parts(here: Path) -> None:
    own = ["--method", "own.py:Mine", "--sampler", "own.py:Everybody", "--transforms=own.py:Halve"]
    typed = [*own, "--parameter", "3", "--sgd-momentum", "0.5", "--half", "0.25"]
    succeed("run", *QUICK[:-1], "2", *typed)
    folder = here / "runs" / "mine-digits"
    options = read_toml(folder / "config.toml")
    assert options["method"] == "own.py:Mine"
    assert options["mine"]["parameter"] == 3
    assert options["sgd"]["momentum"] == 0.5
    assert options["halve"] == {"half": 0.25}
    succeed("run", "--resume", "--out", str(folder), "--rounds", "3")
    assert len(RunFolder(folder).read_history()) == 3


def test_a_comparison_and_a_sweep_of_a_users_own_method(here: Path) -> None:
    typed = ["--methods", "fedavg,own.py:Mine", "--seeds", "1", "--mine-parameter", "3"]
    succeed("compare", *QUICK, *typed, "--out", "both")
    fedavg, mine = StudyFolder(here / "both").read().variants
    assert (mine.name, mine.label, fedavg.label) == ("mine", "Mine", "FedAvg")
    assert mine.options["mine"]["parameter"] == 3
    models = [here / "both" / v.name / "seed-0" / "model.safetensors" for v in (fedavg, mine)]
    first, second = map(load_file, models)  # it is averaging under another name
    assert all(torch.equal(first[name], second[name]) for name in (*first, *second))
    grid = ["--method", "own.py:Mine", "--grid", "mine-parameter=1,2"]
    succeed("sweep", *QUICK, *grid, "--out", "grid")
    cells = [
        variant.options["mine"]["parameter"]
        for variant in StudyFolder(here / "grid").read().variants
    ]
    assert cells == [1, 2]
