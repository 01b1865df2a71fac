"""What docs/flower.md shows works as it stands there."""

import re
import shlex
import sys
from importlib.resources import files
from pathlib import Path

import click
import pytest
from flwr.app import Context, RecordDict

from cadis.cli.command_line import commands
from cadis.flower.strategy_settings import StrategySettings
from cadis.store import RunFolder
from flower_support import LocalGrid

PAGE = (Path(__file__).parents[2] / "docs" / "flower.md").read_text(encoding="utf-8")
TASK = """
from support import small_federation, small_model as Net

def load_data(context):
    own = small_federation().clients[context.node_config["partition-id"]]
    return (own.inputs, own.labels), (own.inputs, own.labels)
"""


def test_the_two_apps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    server, client = apps
    server(LocalGrid.of(client), Context(1, 1, {}, RecordDict(), {}))  # type: ignore[operator, arg-type]
    history = RunFolder(Path("runs/mine")).read_history()
    assert len(history) == 10
    assert history[-1].accuracy is not None
    del sys.modules["my_app.task"]


def test_defaults_are_as_told() -> None:
    settings = StrategySettings()
    for name in ("min_replies", "attempts", "min_available_nodes", "patience"):
        assert f"`{name}` ({getattr(settings, name):g})" in PAGE


def test_commands_and_their_options_exist() -> None:
    shown = re.findall(r"(cadis deploy [^`#\n]*)", PAGE)
    assert shown
    for line in shown:
        words = shlex.split(line)[1:]
        command: click.Command = commands
        context = click.Context(command)
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None, line
            command = found
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, line


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (Path(__file__).parents[2] / "docs" / target).exists(), target


def test_who_can_run_code_at_the_sites_is_said_first() -> None:
    readme = (files("cadis.flower") / "deployment.md").read_text(encoding="utf-8")
    for text in (PAGE, readme):
        assert text.lower().index("whoever") < text.index("pip install")
        assert text.index("/v1/fleet/") < text.index("pip install")
