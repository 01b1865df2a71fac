"""Each option is declared once; the command line, cadis.run and the engine agree with it."""

import inspect
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import cadis
from cadis.algorithm import KINDS
from cadis.engine import EngineSettings
from cadis.experiment import Settings
from cadis.options import CHANGEABLE_OPTIONS, OPTIONS, find_options_by_scope
from cadis.training import LocalSettings
from cli_support import succeed

ROOT = Path(__file__).parents[1]
APP = ROOT / "examples" / "flower" / "pyproject.toml"
DEFAULTS = {field.name: field.default for field in fields(Settings)}
NO_OPTIONS = {"test", "client_tests", "metric", "client_ids", "true_clusters"} | {
    *("out", "resume", "on_round", "progress", "track")
}
"""Keywords of cadis.run that are data, paths, callbacks or parameters of a part."""


def test_keywords_of_run_are_options_with_the_same_defaults() -> None:
    keywords = inspect.signature(cadis.run).parameters
    assert keywords.keys() - NO_OPTIONS <= {*KINDS, *OPTIONS}
    different = {"model", "clients", "rounds", "per_round", "head"}  # data, required, or None
    for name in keywords.keys() & OPTIONS.keys() - different:
        assert keywords[name].default == DEFAULTS[name], name


def test_run_takes_every_option_except_those_that_load_a_dataset() -> None:
    loading = {*find_options_by_scope("data"), "data_dir", "offline", "cache", "own_tests"}
    missing = OPTIONS.keys() - inspect.signature(cadis.run).parameters.keys()
    assert missing == loading - {"clients", "client_test"}


@pytest.mark.parametrize("kind", [EngineSettings, LocalSettings])
def test_settings_of_the_engine_are_options_with_the_same_defaults(kind: type) -> None:
    for field in fields(kind):
        assert field.name in OPTIONS or field.name == "local"
        if field.default not in (MISSING, None):
            assert field.default == DEFAULTS[field.name], field.name


def test_help_shows_the_declared_text_of_each_option() -> None:
    text = " ".join(succeed("run", "--help").split())
    for name, option in OPTIONS.items():
        assert option.help.endswith("."), name
        assert " ".join(option.help.split()) in text.replace("- ", "-"), name


def test_options_that_a_resumed_run_may_change_are_documented() -> None:
    assert {*CHANGEABLE_OPTIONS} == {
        *find_options_by_scope("machine"),
        *("rounds", "test_clients", "eval_every", "own_tests"),
    }
    page = (ROOT / "docs" / "how-to" / "resume.md").read_text(encoding="utf-8")
    for name in CHANGEABLE_OPTIONS:
        assert f"`--{name.replace('_', '-')}`" in page, name


def test_config_of_the_flower_app_has_options_of_the_same_type() -> None:
    config = tomllib.loads(APP.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    for line, value in config.items():
        name = line.replace("-", "_")
        if name in OPTIONS and not isinstance(DEFAULTS[name], tuple):
            assert type(value) is type(DEFAULTS[name]), line
