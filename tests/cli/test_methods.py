"""``cadis methods``: everything there is, and all of one."""

import pytest
from click.testing import CliRunner

from cadis.algorithm import catalogue
from cadis.algorithm.catalogue import KINDS_OF_METHODS, Entry
from cadis.algorithm.methods import METHODS
from cadis.algorithm.samplers import SAMPLERS
from cadis.cli.command_line import commands

ENTRIES = [entry for entries in catalogue().values() for entry in entries]


def shown(*arguments: str, columns: int = 100) -> str:
    result = CliRunner().invoke(commands, ["methods", *arguments], env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.output


def test_everything_is_listed_once_by_what_it_is_about() -> None:
    assert sorted(entry.name for entry in ENTRIES) == sorted([*METHODS, *SAMPLERS])
    output = shown()
    places = [output.index(about.capitalize()) for about in KINDS_OF_METHODS]
    assert places == sorted(places)
    for entry in ENTRIES:
        assert f" {entry.name} " in output


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_each_tells_what_it_is(entry: Entry) -> None:
    assert 20 < len(entry.line) <= 89
    assert entry.line.endswith(".")
    assert entry.about.paper or entry.name == "singleset"
    output = shown(entry.name)
    assert entry.line.split()[0] in output
    assert f"cadis run --{entry.kind.key} {entry.name}" in output


def test_parameters_and_what_it_goes_with_are_told() -> None:
    output = shown("cadis", columns=200)
    assert "--cadis-distillation" in output
    assert "lambda, strength of the distillation" in output
    assert "momentum" in output
    assert "Goes with the sampler" in output


def test_sixty_columns_lose_nothing() -> None:
    output = shown(columns=60)
    assert all(entry.name in output for entry in ENTRIES)
    assert max(map(len, output.splitlines())) <= 60
