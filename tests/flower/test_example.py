"""The example app, on a grid in this process; every part is an option, a user's own included."""

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
from support import draw_picture, same, small_federation

APP = Path(__file__).parents[2] / "examples" / "flower"
PROJECT = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))
CONFIG: dict[str, Any] = PROJECT["tool"]["flwr"]["app"]["config"]
sys.path.insert(0, str(APP))

from cadis_app.client_app import app as client_app  # noqa: E402
from cadis_app.server_app import app as server_app  # noqa: E402
from cadis_app.task import task_at  # noqa: E402

Serve = Callable[..., RunFolder]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Run the app with these options and nodes; the folder of the run."""
    monkeypatch.setenv("CADIS_STATE", str(tmp_path / "state"))

    def serve(nodes: list[dict[str, Any]], **options: Any) -> RunFolder:
        given = {name.replace("_", "-"): value for name, value in options.items()}
        run = CONFIG | {"out": str(tmp_path / "run")} | given
        grid = LocalGrid({n: Node(client_app, node, run=run) for n, node in enumerate(nodes, 5)})
        main: ServerApp = server_app
        main(grid, Context(1, 1, {}, RecordDict(), run))
        return RunFolder(Path(run["out"]))

    return serve


def parts(number: int) -> list[dict[str, Any]]:
    return [{"partition-id": n, "num-partitions": number} for n in range(number)]


def check_like_embedded(folder: RunFolder, **options: Any) -> None:
    """Compare a run of six clients with that of ``cadis run``."""
    embedded = folder.path.with_name("embedded")
    result = run_experiment(resolve({}, {"clients": 6, "stack": False, **options}), embedded)
    found = load_file(folder.path / "model.safetensors")
    for name, tensor in result.model.state_dict().items():
        assert same(found[name], tensor.contiguous())
    described = RunFolder(embedded).read_json("federation.json")
    assert folder.read_json("federation.json") == described


def test_it_is_cadis_run_on_flower(serve: Serve) -> None:
    folder = serve(parts(6), rounds=2, per_round=4, options="threshold=0.6", epochs=1)
    check_like_embedded(folder, rounds=2, per_round=4, threshold=0.6, epochs=1)
    assert {path.stem for path in folder.figures.iterdir()} >= {"accuracy", "clusters"}


def test_it_holds_out_what_cadis_run_holds_out(serve: Serve) -> None:
    given: dict[str, Any] = {"rounds": 1, "per_round": 4, "epochs": 1, "client_test": 0.3}
    folder = serve(parts(6), **given, fraction_evaluate=1.0)
    check_like_embedded(folder, **given)
    described = folder.read_json("federation.json")
    run = CONFIG | {"client-test": 0.3}
    for node, client in zip(parts(6), described["clients"], strict=True):
        _, data = task_at(node, run)
        assert data.train.labels.bincount(minlength=10).tolist() == client["samples"]
        assert data.test.labels.bincount(minlength=10).tolist() == client["test_samples"]
    with pytest.raises(CadisError, match=r"has client_test = 0\.3, not 0\.2"):
        serve(parts(6), rounds=2, per_round=4, epochs=1, client_test=0.2, resume=True)


def test_sites_with_pictures_of_their_own_test_them_too(serve: Serve, tmp_path: Path) -> None:
    for site, kinds in (("one", "ab"), ("two", "ab"), ("three", "c")):
        for number in range(20):
            kind = kinds[number % len(kinds)]
            path = tmp_path / site / kind / f"{number}.png"
            draw_picture(path, colour="abc".index(kind), seed=number)
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


def test_sites_with_tensors_of_their_own_and_a_server_that_tests(
    serve: Serve, tmp_path: Path
) -> None:
    federation = small_federation()
    nodes = []
    for number, own in enumerate((*federation.clients, federation.test)):
        path = tmp_path / f"{number}.safetensors"
        save_file({"inputs": own.inputs, "labels": own.labels}, path)
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
        ({"images": "/none"}, {}, "/none is neither a folder of pictures nor"),
    ],
)
def test_a_site_without_data_is_told_what_to_do(
    node: dict[str, Any], options: dict[str, Any], sentence: str, serve: Serve
) -> None:
    nodes = [node | {"client-id": name, "num-partitions": 3} for name in ("a", "b", "c")]
    with pytest.raises(RunError, match=sentence):
        serve(nodes, rounds=1, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dataset": "sites"}, "Name the classes that the sites have"),
        ({"dataset": "sites", "classes": "a,b", "shape": "3x8"}, "channels x height x width"),
        ({"method": "singleset"}, "singleset needs everybody's data in one place"),
        ({"options": "treshold=0.5"}, "did you mean 'threshold'"),
        ({"rounds": 0}, "rounds should be greater than 0"),
    ],
)
def test_wrong_options_are_sentences(options: dict[str, Any], sentence: str, serve: Serve) -> None:
    with pytest.raises(CadisError, match=sentence):
        serve(parts(3), **options)


def test_the_package_has_the_app() -> None:
    linked = Path(cadis.__file__).parent / "flower" / "app"
    assert (linked / "pyproject.toml").read_bytes() == (APP / "pyproject.toml").read_bytes()
    assert (APP / "LICENSE").read_bytes() == (APP.parents[1] / "LICENSE").read_bytes()


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
