"""The embedded engine, Flower in this process and Flower's simulation give the same model."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cadis.methods import Method
from cadis.models import FlatModel
from flower_support import FEDERATED, LocalGrid, small_app, train_small
from processes import processes
from support import model_after, run_rounds, small_model

TOLERANCE = 1e-7
"""The largest difference of two parameters; they differ only by the order of sums."""


def check_like_embedded(
    found: Mapping[str, Tensor], method: Method, batch_norm: bool, folder: Path
) -> None:
    flat = FlatModel(small_model(batch_norm))
    flat.load(model_after(run_rounds(method, folder, model=small_model(batch_norm))[-1]))
    expected = flat.module.state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("method", FEDERATED, ids=lambda method: method.name)
def test_in_this_process(method: Method, batch_norm: bool, tmp_path: Path) -> None:
    model = small_model(batch_norm)
    arrays = train_small(method, LocalGrid.of(small_app(tmp_path, model=model)), model)
    check_like_embedded(arrays.to_torch_state_dict(), method, batch_norm, tmp_path)


def test_in_simulation(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    command: list[str | Path] = [sys.executable, tests / "simulated.py", tmp_path]
    with processes(tmp_path) as started:
        code = started.finish("simulation", command, {"PYTHONPATH": str(tests)})
        assert code == 0, started.said("simulation")
    for method in FEDERATED:
        found = load_file(tmp_path / f"{method.name}.safetensors")
        check_like_embedded(found, method, True, tmp_path)
