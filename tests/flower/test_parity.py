"""The embedded engine, Flower in this process and Flower's simulation give the same model."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cadis.algorithm import Algorithm
from cadis.models import FlatModel
from flower_support import COMPOSED, FEDERATED, OWN, LocalGrid, small_app, train_small
from processes import processes
from support import run_rounds, small_model

TOLERANCE = 1e-7
"""The largest difference of two parameters; they differ only by the order of sums."""


def check_like_embedded(
    found: Mapping[str, Tensor], algorithm: Algorithm, batch_norm: bool, folder: Path
) -> None:
    last = run_rounds(algorithm, folder, model=small_model(batch_norm))[-1]
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
