"""Tests that the engine, Flower in this process and Flower's simulation give the same model."""

import gc
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Strategy
from safetensors.torch import load_file
from torch import Tensor, nn

import cadis
from cadis.algorithm import Algorithm, BaseMethod
from cadis.algorithm.methods import CADIS, IFCA, SCAFFOLD, FedAvg, FedProx
from cadis.algorithm.tasks import Binary
from cadis.engine import Engine, Federation
from cadis.errors import CadisError
from cadis.flower.evaluation import server_test
from cadis.flower.strategy import MethodStrategy
from cadis.models import FlatModel
from cadis.store import ModelInputs
from flower_support import (
    COMPOSITIONS,
    CUSTOM_CLASSES,
    METHOD_ALGORITHMS,
    TRAIN_CONFIG,
    LocalGrid,
    have_equal_arrays,
    read_history,
    small_app,
    small_arrays,
    train_small,
)
from processes import processes
from support import blobs, get_model, run_rounds, small_federation, small_model, small_settings

TOLERANCE = 1e-7
"""Maximum difference of two parameters; only the order of sums differs."""


class RecordingGrid(LocalGrid):
    """A grid that records all arrays in replies, with a copy of their bytes."""

    def __init__(self, app: ClientApp, keep_replies: bool) -> None:
        super().__init__(LocalGrid.with_app(app).nodes)
        self.keep_replies = keep_replies
        self.replies: list[Message] = []
        self.arrays: list[tuple[ref[Array], bytes]] = []

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = list(super().send_and_receive(messages, timeout=timeout))
        for reply in replies:
            for record in reply.content.array_records.values():
                self.arrays += [(ref(a), bytes(bytearray(a.data))) for a in record.values()]
        self.replies += replies if self.keep_replies else []
        return replies


def check_equals_engine(
    tensors: Mapping[str, Tensor], algorithm: Algorithm, batch_norm: bool, folder: Path
) -> None:
    settings = replace(small_settings(), stack=False)  # Flower's nodes train one client at a time
    last = run_rounds(algorithm, folder, settings, small_model(batch_norm))[-1]
    layout = FlatModel(small_model(batch_norm)).layout
    expected = layout.unpack_models(last.state.server.models)
    assert tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(tensors[name], tensor, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("name", [*METHOD_ALGORITHMS, *COMPOSITIONS])
def test_flower_in_this_process_equals_the_engine(
    name: str, batch_norm: bool, tmp_path: Path
) -> None:
    """Replies are read without copies, and must not be changed."""
    model, algorithm = small_model(batch_norm), {**METHOD_ALGORITHMS, **COMPOSITIONS}[name]
    grid = RecordingGrid(
        small_app(tmp_path, model=model, custom_classes=CUSTOM_CLASSES), keep_replies=True
    )
    arrays = train_small(algorithm, grid, model)
    check_equals_engine(arrays.to_torch_state_dict(), algorithm, batch_norm, tmp_path)
    num_trained = sum(node.message_types.count("train") for node in grid.nodes.values())
    assert num_trained == 9 or name == "fedcluster"  # a small cluster has fewer participants
    assert len(grid.arrays) >= num_trained * len(model.state_dict()) > 0
    for array, before in grid.arrays:
        current = array()
        assert current is not None
        assert current.data == before


def test_replies_are_freed_before_the_evaluation(tmp_path: Path) -> None:
    grid, alive = RecordingGrid(small_app(tmp_path), keep_replies=False), []

    def test(number: int, _arrays: ArrayRecord) -> MetricRecord:
        gc.collect()
        alive.append((number, sum(array() is not None for array, _ in grid.arrays)))
        return MetricRecord({"accuracy": 0.5})

    strategy = MethodStrategy(CADIS(), per_round=3, seed=7, fraction_evaluate=0)
    config = ConfigRecord(dict(TRAIN_CONFIG))
    strategy.start(grid, small_arrays(), 3, train_config=config, evaluate_fn=test)
    assert alive == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert len(grid.arrays) == 3 * 3 * len(small_arrays())


def test_flower_simulation_equals_the_engine(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    command: list[str | Path] = [sys.executable, tests / "simulated.py", tmp_path]
    paths = os.pathsep.join(map(str, (tests, tests.parent / "examples" / "methods")))
    with processes(tmp_path) as started:
        code = started.finish("simulation", command, {"PYTHONPATH": paths})
        assert code == 0, started.read_log("simulation")
    for name, algorithm in {**METHOD_ALGORITHMS, **COMPOSITIONS}.items():
        tensors = load_file(tmp_path / f"{name}.safetensors")
        check_equals_engine(tensors, algorithm, True, tmp_path)


def test_binary_task_equals_the_engine(tmp_path: Path) -> None:
    """The model has one output; the metrics on the server are those of the engine."""
    clients = [blobs(12 + n, [n % 2, n % 2, 1], seed=n) for n in range(4)]
    federation = Federation(clients, blobs(20, [0, 1], seed=9))
    model = small_model()
    model[-1] = nn.Linear(7, 1)  # type: ignore[operator]
    algorithm = Algorithm(CADIS(), task=Binary(positive_weight=2.0))
    settings = replace(small_settings(), per_round=None, stack=False)
    engine = Engine(model, federation, algorithm, settings, tmp_path / "clients")
    (*_, last) = engine.rounds(engine.start)
    options: dict[str, Any] = {"seed": 7, "min_available_nodes": 4, "out": tmp_path / "run"}
    result = MethodStrategy(**vars(algorithm), **options).start(
        LocalGrid.with_app(small_app(tmp_path / "state", federation, model), number=4),
        ArrayRecord(model.state_dict()),
        3,
        train_config=ConfigRecord(dict(TRAIN_CONFIG)),
        evaluate_fn=server_test(model, federation.test, Binary()),
    )
    expected = engine.layout.unpack_models(last.state.server.models)
    for name, tensor in result.arrays.to_torch_state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=TOLERANCE)
    record = read_history(tmp_path)[-1]
    assert record.metrics == pytest.approx(last.record.metrics)
    assert record.metrics.keys() == {"auc", "f1", "balanced_accuracy", "log_loss"}
    assert set(result.evaluate_metrics_clientapp[3]) >= {"accuracy", "loss", "f1"}


def test_several_models_in_flowers_loop(tmp_path: Path) -> None:
    """Flower's loop stores the models between rounds."""
    grid, config = LocalGrid.with_small_app(tmp_path), ConfigRecord(dict(TRAIN_CONFIG))
    strategy = MethodStrategy(IFCA(), per_round=3, seed=7, fraction_evaluate=0)
    result = Strategy.start(strategy, grid, small_arrays(), 3, train_config=config)
    assert have_equal_arrays(result.arrays, train_small(Algorithm(IFCA()), grid, small_model()))


def make_convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 5, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


class EmbeddingLast(nn.Module):
    """Has a 2-D weight that is not of a linear layer; the server cannot distinguish it."""

    def __init__(self) -> None:
        super().__init__()
        self.network = make_convolutional()
        self.shift = nn.Embedding(1, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.network(inputs) + self.shift.weight
        return logits


@pytest.mark.parametrize("method", [FedAvg(), FedProx(), SCAFFOLD()], ids=lambda m: m.name)
@pytest.mark.parametrize("model", [make_convolutional, EmbeddingLast])
def test_model_without_linear_classifier_equals_the_engine(
    method: BaseMethod, model: type[nn.Module], tmp_path: Path
) -> None:
    app = small_app(tmp_path / "state", model=model())
    algorithm, initial = Algorithm(method), model()
    embedded = run_rounds(algorithm, tmp_path, small_settings(), initial)
    arrays = train_small(algorithm, LocalGrid.with_app(app), initial).to_torch_state_dict()
    layout = FlatModel(model(), "").layout
    expected = layout.unpack(get_model(embedded[-1]))
    for name, tensor in expected.items():
        assert torch.allclose(arrays[name], tensor, atol=1e-6)


def test_saved_run_without_linear_classifier_needs_class_names(tmp_path: Path) -> None:
    grid = LocalGrid.with_app(small_app(tmp_path / "state", model=make_convolutional()))
    arrays, config = small_arrays(make_convolutional()), ConfigRecord(dict(TRAIN_CONFIG))
    with pytest.raises(CadisError, match=r"'cadis' needs the classifier layer.*fedavg"):
        MethodStrategy(CADIS()).start(grid, arrays, 1, train_config=config)
    with pytest.raises(
        CadisError, match="the number of classes is unknown; name the classes: federation="
    ):
        MethodStrategy(FedAvg(), out=tmp_path / "run").start(grid, arrays, 1, train_config=config)
    federation = {"classes": list("abcde"), "clients": []}
    test = small_federation().test
    strategy = MethodStrategy(
        FedAvg(),
        out=tmp_path / "run",
        federation=federation,
        inputs=ModelInputs.from_samples(test),
    )
    evaluate_fn = server_test(make_convolutional(), test)
    strategy.start(grid, arrays, 1, train_config=config, evaluate_fn=evaluate_fn)
    predictor = cadis.load(tmp_path / "run", model=make_convolutional())
    assert predictor.classes == tuple("abcde")
    assert predictor.description.num_outputs == 5
    predicted = predictor(test.inputs).argmax(dim=1)
    (record,) = read_history(tmp_path)
    assert float((predicted == test.labels).float().mean()) == pytest.approx(record.accuracy)
    assert "| e | unknown | 5 |" in (tmp_path / "run" / "MODEL_CARD.md").read_text()
