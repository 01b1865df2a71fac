"""The embedded engine, Flower in this process and Flower's simulation give the same model."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import Strategy
from safetensors.torch import load_file
from torch import Tensor, nn

from cadis.algorithm import Algorithm
from cadis.algorithm.methods import CADIS, IFCA
from cadis.algorithm.tasks import Binary
from cadis.engine import Engine, Federation
from cadis.flower.evaluation import server_test
from cadis.flower.strategy import MethodStrategy
from cadis.models import FlatModel
from cadis.store import RunFolder
from flower_support import (
    COMPOSED,
    FEDERATED,
    OWN,
    SMALL,
    LocalGrid,
    equal,
    small_app,
    small_arrays,
    train_small,
)
from processes import processes
from support import blobs, run_rounds, small_model, small_settings

TOLERANCE = 1e-7
"""The largest difference of two parameters; they differ only by the order of sums."""


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
    model, algorithm = small_model(batch_norm), {**FEDERATED, **COMPOSED}[name]
    grid = LocalGrid.of(small_app(tmp_path, model=model, own=OWN))
    arrays = train_small(algorithm, grid, model)
    check_like_embedded(arrays.to_torch_state_dict(), algorithm, batch_norm, tmp_path)


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
    strategy = MethodStrategy(
        **algorithm.parts(), seed=7, min_available_nodes=4, out=tmp_path / "run"
    )
    result = strategy.start(
        LocalGrid.of(small_app(tmp_path / "state", federation, model), number=4),
        ArrayRecord(model.state_dict()),
        3,
        train_config=ConfigRecord(dict(SMALL)),
        evaluate_fn=server_test(model, federation.test, Binary()),
    )
    expected = engine.layout.unpack_all(last.state.server.models)
    for name, tensor in result.arrays.to_torch_state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=TOLERANCE)
    kept = RunFolder(tmp_path / "run").read_history()[-1]
    assert kept.measures == pytest.approx(last.record.measures)
    assert kept.measures.keys() == {"auc", "f1", "balanced_accuracy", "log_loss"}
    assert set(result.evaluate_metrics_clientapp[3]) >= {"accuracy", "loss", "f1"}


def test_several_models_in_flowers_own_loop(tmp_path: Path) -> None:
    """Which holds the models between the rounds."""
    strategy = MethodStrategy(IFCA(), per_round=3, seed=7, fraction_evaluate=0)
    grid = LocalGrid.of(small_app(tmp_path, own=OWN))
    found = Strategy.start(
        strategy, grid, small_arrays(), 3, train_config=ConfigRecord(dict(SMALL))
    )
    whole = MethodStrategy(IFCA(), per_round=3, seed=7, fraction_evaluate=0).start(
        grid, small_arrays(), 3, train_config=ConfigRecord(dict(SMALL))
    )
    assert equal(found.arrays, whole.arrays)
