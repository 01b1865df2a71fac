"""The example app, on a grid in this process."""

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict
from flwr.serverapp import ServerApp
from safetensors.torch import load_file, save_file

import cadis
from cadis.errors import CadisError, RunError
from cadis.experiment import resolve, run_experiment
from cadis.store import RunFolder
from flower_support import LocalGrid, Node
from support import draw_picture, same, small_federation

APP = Path(__file__).parents[2] / "examples" / "flower"
sys.path.insert(0, str(APP))

from cadis_app.client_app import app as client_app  # noqa: E402
from cadis_app.server_app import app as server_app  # noqa: E402
from cadis_app.task import task_at  # noqa: E402

Serve = Callable[..., RunFolder]


def config_of_the_app() -> dict[str, Any]:
    project = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))
    config: dict[str, Any] = project["tool"]["flwr"]["app"]["config"]
    return config


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Run the app with these options and nodes; the folder of the run."""
    monkeypatch.setenv("CADIS_STATE", str(tmp_path / "state"))

    def serve(nodes: list[dict[str, Any]], **options: Any) -> RunFolder:
        given = {name.replace("_", "-"): value for name, value in options.items()}
        run = config_of_the_app() | {"out": str(tmp_path / "run")} | given
        grid = LocalGrid({n: Node(client_app, node, run=run) for n, node in enumerate(nodes, 5)})
        main: ServerApp = server_app
        main(grid, Context(1, 1, {}, RecordDict(), run))
        return RunFolder(Path(run["out"]))

    return serve


def parts(number: int) -> list[dict[str, Any]]:
    return [{"partition-id": n, "num-partitions": number} for n in range(number)]


def test_it_is_cadis_run_on_flower(serve: Serve, tmp_path: Path) -> None:
    folder = serve(parts(6), rounds=2, per_round=4, options="threshold=0.6", epochs=1)
    given = {"clients": 6, "rounds": 2, "per_round": 4, "threshold": 0.6, "epochs": 1}
    embedded = run_experiment(resolve({}, {**given, "stack": False}), tmp_path / "embedded")
    found = load_file(folder.path / "model.safetensors")
    for name, tensor in embedded.model.state_dict().items():
        assert same(found[name], tensor.contiguous())
    assert folder.read_json("federation.json") == RunFolder(tmp_path / "embedded").read_json(
        "federation.json"
    )
    assert {path.stem for path in folder.figures.iterdir()} >= {"accuracy", "clusters"}


def test_it_holds_out_what_cadis_run_holds_out(serve: Serve, tmp_path: Path) -> None:
    given: dict[str, Any] = {"rounds": 1, "per_round": 4, "epochs": 1, "client_test": 0.3}
    folder = serve(parts(6), **given, fraction_evaluate=1.0)
    given |= {"clients": 6, "stack": False}
    embedded = run_experiment(resolve({}, given), tmp_path / "embedded")
    found = load_file(folder.path / "model.safetensors")
    for name, tensor in embedded.model.state_dict().items():
        assert same(found[name], tensor.contiguous())
    described = RunFolder(tmp_path / "embedded").read_json("federation.json")
    assert folder.read_json("federation.json") == described
    run = config_of_the_app() | {"client-test": 0.3}
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
