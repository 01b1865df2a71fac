"""The embedded engine, Flower in this process and Flower's simulation give the same model."""

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
    COMPOSED,
    FEDERATED,
    OWN,
    SMALL,
    LocalGrid,
    equal,
    history,
    small_app,
    small_arrays,
    train_small,
)
from processes import processes
from support import blobs, model_after, run_rounds, small_federation, small_model, small_settings

TOLERANCE = 1e-7
"""The largest difference of two parameters; they differ only by the order of sums."""


class Watched(LocalGrid):
    """A grid that knows of every array that clients have sent, and what it was like."""

    def __init__(self, app: ClientApp, keeps: bool) -> None:
        super().__init__(LocalGrid.of(app).nodes)
        self.keeps = keeps
        self.kept: list[Message] = []
        self.sent: list[tuple[ref[Array], bytes]] = []  # as they were when they came

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = list(super().send_and_receive(messages, timeout=timeout))
        for reply in replies:
            for record in reply.content.array_records.values():
                self.sent += [(ref(a), bytes(bytearray(a.data))) for a in record.values()]
        self.kept += replies if self.keeps else []
        return replies


def check_like_embedded(
    found: Mapping[str, Tensor], algorithm: Algorithm, batch_norm: bool, folder: Path
) -> None:
    settings = replace(small_settings(), stack=False)  # as Flower's nodes train: one by one
    last = run_rounds(algorithm, folder, settings, small_model(batch_norm))[-1]
    layout = FlatModel(small_model(batch_norm)).layout
    expected = layout.unpack_all(last.state.server.models)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("name", [*FEDERATED, *COMPOSED])
def test_in_this_process(name: str, batch_norm: bool, tmp_path: Path) -> None:
    """Models are read where they lie, in memory that nobody may write to."""
    model, algorithm = small_model(batch_norm), {**FEDERATED, **COMPOSED}[name]
    grid = Watched(small_app(tmp_path, model=model, own=OWN), keeps=True)
    arrays = train_small(algorithm, grid, model)
    check_like_embedded(arrays.to_torch_state_dict(), algorithm, batch_norm, tmp_path)
    trained = sum(node.asked.count("train") for node in grid.nodes.values())
    assert trained == 9 or name == "fedcluster"  # of a small cluster fewer take part
    assert len(grid.sent) >= trained * len(model.state_dict()) > 0
    for array, before in grid.sent:
        now = array()
        assert now is not None
        assert now.data == before


def test_models_are_let_go_before_the_new_one_is_tested(tmp_path: Path) -> None:
    grid, alive = Watched(small_app(tmp_path), keeps=False), []

    def test(number: int, _arrays: ArrayRecord) -> MetricRecord:
        gc.collect()
        alive.append((number, sum(array() is not None for array, _ in grid.sent)))
        return MetricRecord({"accuracy": 0.5})

    strategy = MethodStrategy(CADIS(), per_round=3, seed=7, fraction_evaluate=0)
    config = ConfigRecord(dict(SMALL))
    strategy.start(grid, small_arrays(), 3, train_config=config, evaluate_fn=test)
    assert alive == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert len(grid.sent) == 3 * 3 * len(small_arrays())


def test_in_simulation(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    command: list[str | Path] = [sys.executable, tests / "simulated.py", tmp_path]
    places = os.pathsep.join(map(str, (tests, tests.parent / "examples" / "methods")))
    with processes(tmp_path) as started:
        code = started.finish("simulation", command, {"PYTHONPATH": places})
        assert code == 0, started.said("simulation")
    for name, algorithm in {**FEDERATED, **COMPOSED}.items():
        found = load_file(tmp_path / f"{name}.safetensors")
        check_like_embedded(found, algorithm, True, tmp_path)


def test_a_binary_task(tmp_path: Path) -> None:
    """One output; measures of the server's test are those of the engine's."""
    owned = [blobs(12 + n, [n % 2, n % 2, 1], seed=n) for n in range(4)]
    federation = Federation(owned, blobs(20, [0, 1], seed=9))
    model = small_model()
    model[-1] = nn.Linear(7, 1)  # type: ignore[operator]
    algorithm = Algorithm(CADIS(), task=Binary(positive_weight=2.0))
    settings = replace(small_settings(), per_round=None, stack=False)
    engine = Engine(model, federation, algorithm, settings, tmp_path / "clients")
    (*_, last) = engine.rounds(engine.start)
    options: dict[str, Any] = {"seed": 7, "min_available_nodes": 4, "out": tmp_path / "run"}
    result = MethodStrategy(**algorithm.parts(), **options).start(
        LocalGrid.of(small_app(tmp_path / "state", federation, model), number=4),
        ArrayRecord(model.state_dict()),
        3,
        train_config=ConfigRecord(dict(SMALL)),
        evaluate_fn=server_test(model, federation.test, Binary()),
    )
    expected = engine.layout.unpack_all(last.state.server.models)
    for name, tensor in result.arrays.to_torch_state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=TOLERANCE)
    kept = history(tmp_path)[-1]
    assert kept.measures == pytest.approx(last.record.measures)
    assert kept.measures.keys() == {"auc", "f1", "balanced_accuracy", "log_loss"}
    assert set(result.evaluate_metrics_clientapp[3]) >= {"accuracy", "loss", "f1"}


def test_several_models_in_flowers_own_loop(tmp_path: Path) -> None:
    """Which holds the models between the rounds."""
    grid, config = LocalGrid.small(tmp_path), ConfigRecord(dict(SMALL))
    strategy = MethodStrategy(IFCA(), per_round=3, seed=7, fraction_evaluate=0)
    found = Strategy.start(strategy, grid, small_arrays(), 3, train_config=config)
    assert equal(found.arrays, train_small(Algorithm(IFCA()), grid, small_model()))


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 5, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


class Words(nn.Module):
    """Has a two-dimensional weight that is no linear layer's, which a server cannot know."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutional()
        self.shift = nn.Embedding(1, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        shifted: torch.Tensor = self.body(inputs) + self.shift.weight
        return shifted


@pytest.mark.parametrize("method", [FedAvg(), FedProx(), SCAFFOLD()], ids=lambda m: m.name)
@pytest.mark.parametrize("model", [convolutional, Words])
def test_a_model_without_a_linear_classifier(
    method: BaseMethod, model: type[nn.Module], tmp_path: Path
) -> None:
    app = small_app(tmp_path / "state", model=model())
    algorithm, start = Algorithm(method), model()
    embedded = run_rounds(algorithm, tmp_path, small_settings(), start)
    arrays = train_small(algorithm, LocalGrid.of(app), start).to_torch_state_dict()
    layout = FlatModel(model(), "").layout
    expected = layout.unpack(model_after(embedded[-1]))
    for name, tensor in expected.items():
        assert torch.allclose(arrays[name], tensor, atol=1e-6)


def test_cadis_says_so_and_a_kept_run_wants_names_of_classes(tmp_path: Path) -> None:
    grid = LocalGrid.of(small_app(tmp_path / "state", model=convolutional()))
    arrays, config = small_arrays(convolutional()), ConfigRecord(dict(SMALL))
    with pytest.raises(CadisError, match=r"cadis looks at the model's classifier layer.*fedavg"):
        MethodStrategy(CADIS()).start(grid, arrays, 1, train_config=config)
    with pytest.raises(CadisError, match="how many classes there are; name them: federation="):
        MethodStrategy(FedAvg(), out=tmp_path / "run").start(grid, arrays, 1, train_config=config)
    told = {"classes": list("abcde"), "clients": []}
    test = small_federation().test
    strategy = MethodStrategy(
        FedAvg(), out=tmp_path / "run", federation=told, inputs=ModelInputs.of(test)
    )
    tested = server_test(convolutional(), test)
    strategy.start(grid, arrays, 1, train_config=config, evaluate_fn=tested)
    predictor = cadis.load(tmp_path / "run", model=convolutional())
    assert predictor.classes == tuple("abcde")
    assert predictor.description.num_outputs == 5
    said = predictor(test.inputs).argmax(dim=1)
    (record,) = history(tmp_path)
    assert float((said == test.labels).float().mean()) == pytest.approx(record.accuracy)
    assert "| e | unknown | 5 |" in (tmp_path / "run" / "MODEL_CARD.md").read_text()
