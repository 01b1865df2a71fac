"""The options of the example app: every part is one, a user's own included."""

import shutil
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cadis._io import user_code
from cadis.algorithm.local_optimizers import SGD
from cadis.errors import CadisError
from cadis.experiment import resolve
from own_parts import write_parts

APP = Path(__file__).parents[2] / "examples" / "flower"
CONFIG: dict[str, Any] = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))
CONFIG = CONFIG["tool"]["flwr"]["app"]["config"]


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of a copy of the app, as Flower unpacks it somewhere; we are elsewhere."""
    shutil.copytree(APP, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(user_code, "_folders", [])
    name = f"copied_task_{tmp_path.name}"
    spec = spec_from_file_location(name, tmp_path / "app" / "cadis_app" / "task.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_without_changes_they_are_those_of_cadis_run(task: ModuleType) -> None:
    config = task.read_task(CONFIG, 6).config
    plain = resolve({}, {"clients": 6, "rounds": CONFIG["rounds"]})
    assert config.algorithm == plain.algorithm
    assert config.settings.augment == ()


@pytest.mark.parametrize("place", ["app/cadis_app", "app", "elsewhere"])
def test_a_file_beside_the_app_is_found(place: str, task: ModuleType, tmp_path: Path) -> None:
    write_parts(tmp_path / place, "mymethod.py")
    given = {"method": "mymethod.py:Mine", "options": "parameter=4 sgd-momentum=0.9"}
    config = task.read_task(CONFIG | given | {"transforms": "mymethod.py:Halve"}, 6).config
    assert config.to_dict()["method"] == "mymethod.py:Mine"
    assert config.to_dict()["mine"]["parameter"] == 4
    assert [transform.name for transform in config.algorithm.transforms] == ["halve"]
    assert config.algorithm.local_optimizer == SGD(momentum=0.9)


def test_that_of_the_app_comes_first(task: ModuleType, tmp_path: Path) -> None:
    other = write_parts(tmp_path / "elsewhere", "mymethod.py")
    other.write_text(other.read_text().replace('"mine"', '"other"'))
    write_parts(tmp_path / "app", "mymethod.py")
    assert task.read_task(CONFIG | {"method": "mymethod.py:Mine"}, 6).config.method.name == "mine"


def test_sites_with_other_classes_than_the_task_are_refused(
    task: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "app" / "two.py").write_text(
        "from dataclasses import dataclass\n"
        "from cadis.algorithm.tasks import Classification\n"
        "@dataclass(frozen=True)\n"
        "class Two(Classification):\n"
        "  name = 'two'\n"
        "  def num_outputs(self, num_classes): return 1\n"
        "  def num_classes(self, num_outputs): return 2\n"
    )
    given = {"dataset": "sites", "task": "two.py:Two", "shape": "1x8x8"}
    found = task.read_task(CONFIG | given | {"classes": "a,b"}, 3)
    assert list(found.model.parameters())[-1].shape == (1,)
    assert found.classes == ("a", "b")
    with pytest.raises(CadisError, match="The task two tells 2 classes apart, but there are 3"):
        task.read_task(CONFIG | given | {"classes": "a,b,c"}, 3)


def test_data_are_loaded_and_split_once_in_a_process(task: ModuleType) -> None:
    first, again = task.read_task(CONFIG, 6), task.read_task(dict(CONFIG), 6)
    assert again.federation is first.federation
    assert again.model is not first.model  # it is trained in place
    assert task.read_task(CONFIG, 5).federation is not first.federation
