"""Tests of the examples and statements in the docs on Flower and in docstrings."""

import doctest
import re
import shlex
import sys
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import click
import pytest
from flwr.app import Context, RecordDict

from cadis.cli.command_line import commands
from cadis.flower import client, deployment_scripts, evaluation, strategy, strategy_settings
from cadis.flower.strategy_settings import StrategySettings
from cadis.store import RunFolder
from flower_support import LocalGrid

DOCS = Path(__file__).parents[2] / "docs" / "how-to"
PAGE = (DOCS / "flower.md").read_text(encoding="utf-8")
DEPLOY_PAGE = (DOCS / "deploy.md").read_text(encoding="utf-8")
TASK = """
from support import small_federation, small_model as Net

def load_data(context):
    data = small_federation().clients[context.node_config["partition-id"]]
    return (data.inputs, data.labels), (data.inputs, data.labels)
"""


def test_server_app_and_client_app_of_the_docs_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "my_app"
    package.mkdir()
    (package / "task.py").write_text(TASK)
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in blocks] == ["server_app.py", "client_app.py"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    apps = []
    for _, code in blocks:
        names: dict[str, object] = {}
        exec(code, names)
        apps.append(names["app"])
    server_app, client_app = apps
    server_app(LocalGrid.with_app(client_app), Context(1, 1, {}, RecordDict(), {}))  # type: ignore[operator, arg-type]
    history = RunFolder(Path("runs/mine")).read_history()
    assert len(history) == 10
    assert history[-1].accuracy is not None
    del sys.modules["my_app.task"]


def test_defaults_in_the_docs_are_correct() -> None:
    settings = StrategySettings()
    for name in ("min_replies", "attempts", "min_available_nodes", "patience"):
        assert f"`{name}` ({getattr(settings, name):g})" in PAGE


def test_commands_and_options_in_the_docs_exist() -> None:
    lines = re.findall(r"(cadis deploy [^`#\n]*)", DEPLOY_PAGE)
    assert lines
    for line in lines:
        words = shlex.split(line)[1:]
        command: click.Command = commands
        context = click.Context(command)
        while isinstance(command, click.Group):
            subcommand = command.get_command(context, words.pop(0))
            assert subcommand is not None, line
            command = subcommand
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, line


def test_links_of_the_docs_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE + DEPLOY_PAGE):
        assert (DOCS / target).exists(), target


def test_security_warning_precedes_the_installation() -> None:
    readme = (files("cadis.flower") / "deployment.md").read_text(encoding="utf-8")
    for text in (DEPLOY_PAGE, readme):
        assert text.index("firewall") < text.index("pip install")
        assert text.index("/v1/fleet/") < text.index("pip install")


@pytest.mark.parametrize(
    "module", [client, deployment_scripts, evaluation, strategy, strategy_settings]
)
def test_examples_in_docstrings_are_correct(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert results.attempted
    assert not results.failed
