"""Tests of the example app on a grid in this process."""

import shutil
import sys
import tomllib
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from flwr.app import Context, RecordDict
from flwr.serverapp import ServerApp
from safetensors.torch import load_file, save_file

import cadis
from cadis._io import user_code
from cadis.algorithm.local_optimizers import SGD
from cadis.errors import CadisError, RunError
from cadis.experiment import resolve, run_experiment
from cadis.store import RunFolder
from flower_support import LocalGrid, Node
from own_parts import write_parts
from support import draw_picture, is_identical, small_federation

APP = Path(__file__).parents[2] / "examples" / "flower"
PROJECT = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))
CONFIG: dict[str, Any] = PROJECT["tool"]["flwr"]["app"]["config"]
sys.path.insert(0, str(APP))

from cadis_app.client_app import app as client_app  # noqa: E402
from cadis_app.server_app import app as server_app  # noqa: E402
from cadis_app.task import load_client_setup  # noqa: E402

Serve = Callable[..., RunFolder]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Return a function that runs the app with nodes and options, and returns the run folder."""
    monkeypatch.setenv("CADIS_STATE", str(tmp_path / "state"))

    def serve(nodes: list[dict[str, Any]], **options: Any) -> RunFolder:
        entries = {name.replace("_", "-"): value for name, value in options.items()}
        run = CONFIG | {"out": str(tmp_path / "run")} | entries
        grid = LocalGrid({n: Node(client_app, node, run=run) for n, node in enumerate(nodes, 5)})
        main: ServerApp = server_app
        main(grid, Context(1, 1, {}, RecordDict(), run))
        return RunFolder(Path(run["out"]))

    return serve


def make_nodes(number: int) -> list[dict[str, Any]]:
    return [{"partition-id": n, "num-partitions": number} for n in range(number)]


def check_equals_engine(folder: RunFolder, **options: Any) -> None:
    """Compare a run of six clients with the same run by the engine."""
    embedded = folder.path.with_name("embedded")
    result = run_experiment(resolve({}, {"clients": 6, "stack": False, **options}), embedded)
    tensors = load_file(folder.path / "model.safetensors")
    for name, tensor in result.model.state_dict().items():
        assert is_identical(tensors[name], tensor.contiguous())
    expected = RunFolder(embedded).read_json("federation.json")
    assert folder.read_json("federation.json") == expected


def test_app_equals_cadis_run(serve: Serve) -> None:
    folder = serve(make_nodes(6), rounds=2, per_round=4, options="threshold=0.6", epochs=1)
    check_equals_engine(folder, rounds=2, per_round=4, threshold=0.6, epochs=1)
    assert {path.stem for path in folder.figures.iterdir()} >= {"accuracy", "clusters"}


def test_app_holds_out_the_same_samples_as_cadis_run(serve: Serve) -> None:
    options: dict[str, Any] = {"rounds": 1, "per_round": 4, "epochs": 1, "client_test": 0.3}
    folder = serve(make_nodes(6), **options, fraction_evaluate=1.0)
    check_equals_engine(folder, **options)
    federation = folder.read_json("federation.json")
    run = CONFIG | {"client-test": 0.3}
    for node, client in zip(make_nodes(6), federation["clients"], strict=True):
        _, data = load_client_setup(node, run)
        assert data.train.labels.bincount(minlength=10).tolist() == client["samples"]
        assert data.test.labels.bincount(minlength=10).tolist() == client["test_samples"]
    with pytest.raises(CadisError, match=r"has client_test = 0\.3, not 0\.2"):
        serve(make_nodes(6), rounds=2, per_round=4, epochs=1, client_test=0.2, resume=True)


def test_sites_with_images_train_and_evaluate(serve: Serve, tmp_path: Path) -> None:
    for site, classes in (("one", "ab"), ("two", "ab"), ("three", "c")):
        for number in range(20):
            label = classes[number % len(classes)]
            path = tmp_path / site / label / f"{number}.png"
            draw_picture(path, colour="abc".index(label), seed=number)
    nodes = [{"images": str(tmp_path / s), "client-id": s} for s in ("one", "two", "three")]
    options = {"dataset": "sites", "classes": "a, b, c", "image_size": 8, "model": "small-cnn"}
    folder = serve(nodes, **options, rounds=1)
    assert [record.accuracy for record in folder.read_history()] == [None]
    out = str(tmp_path / "tested")
    folder = serve(nodes, **options, rounds=5, lr=0.05, fraction_evaluate=1.0, out=out)
    last = folder.read_history()[-1]
    assert last.participants == ["one", "three", "two"]
    assert last.accuracy is not None
    assert last.accuracy > 0.6
    assert last.report["clusters"] == [0, 1, 0]


def test_sites_with_tensors_train_and_the_server_evaluates(serve: Serve, tmp_path: Path) -> None:
    federation = small_federation()
    nodes = []
    for number, data in enumerate((*federation.clients, federation.test)):
        path = tmp_path / f"{number}.safetensors"
        save_file({"inputs": data.inputs, "labels": data.labels}, path)
        nodes.append({"tensors": str(path), "client-id": f"site {number}"})
    options = {"dataset": "sites", "classes": "0,1,2,3,4", "shape": "1x4x4", "model": "mlp"}
    folder = serve(nodes[:5], **options, test=nodes[5]["tensors"], rounds=3, method="feddyn")
    assert folder.read_json("federation.json")["classes"] == ["0", "1", "2", "3", "4"]
    swapped = options | {"classes": "1,0,2,3,4", "rounds": 4, "resume": True}
    with pytest.raises(CadisError, match="has classes = 0,1,2,3,4, not 1,0,2,3,4"):
        serve(nodes[:5], **swapped, test=nodes[5]["tensors"], method="feddyn")
    last = folder.read_history()[-1]
    assert sum(map(sum, folder.read_json("summary.json")["confusion"])) == 25
    assert len(last.participants) == 5
    assert list((tmp_path / "state").rglob("round-3-*.safetensors"))


@pytest.mark.parametrize(
    ("node", "options", "sentence"),
    [
        ({}, {}, "This site has no data: start it with .*partition-id=N num-partitions=3"),
        ({"partition-id": 3}, {"clients": 3}, "N from 0 to 2"),
        ({}, {"dataset": "sites", "classes": "a,b"}, "This site has no data: .*images="),
        ({"images": "/none"}, {}, "/none is neither a folder of images nor"),
    ],
)
def test_site_without_data_is_an_error(
    node: dict[str, Any], options: dict[str, Any], sentence: str, serve: Serve
) -> None:
    nodes = [node | {"client-id": name, "num-partitions": 3} for name in ("a", "b", "c")]
    with pytest.raises(RunError, match=sentence):
        serve(nodes, rounds=1, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dataset": "sites"}, "Give the names of all classes"),
        ({"dataset": "sites", "classes": "a,b", "shape": "3x8"}, "channels x height x width"),
        ({"method": "singleset"}, "singleset needs the data of all clients in one process"),
        ({"options": "treshold=0.5"}, "did you mean 'threshold'"),
        ({"rounds": 0}, "rounds should be greater than 0"),
    ],
)
def test_invalid_option_is_an_error(options: dict[str, Any], sentence: str, serve: Serve) -> None:
    with pytest.raises(CadisError, match=sentence):
        serve(make_nodes(3), **options)


def test_package_contains_the_app() -> None:
    packaged = Path(cadis.__file__).parent / "flower" / "app"
    assert (packaged / "pyproject.toml").read_bytes() == (APP / "pyproject.toml").read_bytes()
    assert (APP / "LICENSE").read_bytes() == (APP.parents[1] / "LICENSE").read_bytes()


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module ``task`` of a copy of the app, imported from another working folder."""
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


def test_default_options_are_those_of_cadis_run(task: ModuleType) -> None:
    config = task.load_run_setup(CONFIG, 6).config
    expected = resolve({}, {"clients": 6, "rounds": CONFIG["rounds"]})
    assert config.algorithm == expected.algorithm
    assert config.settings.augment == ()


@pytest.mark.parametrize("folder", ["app/cadis_app", "app", "elsewhere"])
def test_user_file_is_found(folder: str, task: ModuleType, tmp_path: Path) -> None:
    write_parts(tmp_path / folder, "mymethod.py")
    options = {"method": "mymethod.py:Mine", "options": "parameter=4 sgd-momentum=0.9"}
    config = task.load_run_setup(CONFIG | options | {"transforms": "mymethod.py:Halve"}, 6).config
    assert config.to_dict()["method"] == "mymethod.py:Mine"
    assert config.to_dict()["mine"]["parameter"] == 4
    assert [transform.name for transform in config.algorithm.transforms] == ["halve"]
    assert config.algorithm.local_optimizer == SGD(momentum=0.9)


def test_user_file_in_the_app_takes_precedence(task: ModuleType, tmp_path: Path) -> None:
    other = write_parts(tmp_path / "elsewhere", "mymethod.py")
    other.write_text(other.read_text().replace('"mine"', '"other"'))
    write_parts(tmp_path / "app", "mymethod.py")
    assert (
        task.load_run_setup(CONFIG | {"method": "mymethod.py:Mine"}, 6).config.method.name == "mine"
    )


def test_number_of_classes_must_fit_the_task(task: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "app" / "two.py").write_text(
        "from dataclasses import dataclass\n"
        "from cadis.algorithm.tasks import Classification\n"
        "@dataclass(frozen=True)\n"
        "class Two(Classification):\n"
        "  name = 'two'\n"
        "  def num_outputs(self, num_classes): return 1\n"
        "  def num_classes(self, num_outputs): return 2\n"
    )
    options = {"dataset": "sites", "task": "two.py:Two", "shape": "1x8x8"}
    loaded = task.load_run_setup(CONFIG | options | {"classes": "a,b"}, 3)
    assert list(loaded.model.parameters())[-1].shape == (1,)
    assert loaded.classes == ("a", "b")
    with pytest.raises(CadisError, match="The task two is for 2 classes, but the data have 3"):
        task.load_run_setup(CONFIG | options | {"classes": "a,b,c"}, 3)


def test_data_are_loaded_once_per_process(task: ModuleType) -> None:
    first, second = task.load_run_setup(CONFIG, 6), task.load_run_setup(dict(CONFIG), 6)
    assert second.federation is first.federation
    assert second.model is not first.model  # training changes it
    assert task.load_run_setup(CONFIG, 5).federation is not first.federation
