"""Each option is declared once; everything else agrees with the declaration."""

import inspect
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import cadis
from cadis.algorithm import KINDS
from cadis.engine import EngineSettings
from cadis.experiment import Settings
from cadis.options import MAY_CHANGE, OPTIONS, options_of_scope
from cadis.training import LocalSettings
from cli_support import succeed

ROOT = Path(__file__).parents[1]
APP = ROOT / "examples" / "flower" / "pyproject.toml"
DEFAULTS = {field.name: field.default for field in fields(Settings)}
NO_OPTIONS = {"test", "client_tests", "metric", "client_ids", "true_clusters"} | {
    *("out", "resume", "on_round", "progress", "track")
}
"""Keywords of cadis.run that are data, places or callbacks, or parameters of a part."""


def test_keywords_of_run_are_options_with_the_same_defaults() -> None:
    keywords = inspect.signature(cadis.run).parameters
    assert keywords.keys() - NO_OPTIONS <= {*KINDS, *OPTIONS}
    own = {"model", "clients", "rounds", "per_round", "head"}  # data, required, or None for "auto"
    for name in keywords.keys() & OPTIONS.keys() - own:
        assert keywords[name].default == DEFAULTS[name], name


def test_run_takes_every_option_that_its_data_do_not_answer() -> None:
    own_data = {*options_of_scope("data"), "data_dir", "offline", "cache", "own_tests"}
    missing = OPTIONS.keys() - inspect.signature(cadis.run).parameters.keys()
    assert missing == own_data - {"clients", "client_test"}


@pytest.mark.parametrize("kind", [EngineSettings, LocalSettings])
def test_settings_of_the_engine_are_options_with_the_same_defaults(kind: type) -> None:
    for field in fields(kind):
        assert field.name in OPTIONS or field.name == "local"
        if field.default not in (MISSING, None):
            assert field.default == DEFAULTS[field.name], field.name


def test_help_of_the_command_line_is_that_of_the_declaration() -> None:
    text = " ".join(succeed("run", "--help").split())
    for name, option in OPTIONS.items():
        assert option.help.endswith("."), name
        assert " ".join(option.help.split()) in text.replace("- ", "-"), name


def test_what_a_resumed_run_may_change() -> None:
    assert {*MAY_CHANGE} == {
        *options_of_scope("machine"),
        *("rounds", "test_clients", "eval_every", "own_tests"),
    }
    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    for name in MAY_CHANGE:
        assert f"`--{name.replace('_', '-')}`" in page, name


def test_lines_of_the_flower_app_are_options_of_the_same_type() -> None:
    config = tomllib.loads(APP.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    for line, value in config.items():
        name = line.replace("-", "_")
        if name in OPTIONS and not isinstance(DEFAULTS[name], tuple):
            assert type(value) is type(DEFAULTS[name]), line
