"""The moving average of the models, which is tested and stored."""

from pathlib import Path
from typing import Any

import torch

import cadis
from cadis.algorithm import Algorithm
from cadis.algorithm.methods import FedAvg
from cadis.algorithm.server_optimizers import DampedMomentum, Plain
from cadis.models import Layout
from cadis.server import RoundResult, RunState
from support import get_model, is_identical, run_rounds, small_settings

AVERAGED = Algorithm(FedAvg(), server_optimizer=DampedMomentum(averaging=0.6))


def get_average(state: RunState) -> torch.Tensor:
    return state.global_models["model"].parameters


def run(folder: Path, rounds: int = 8) -> list[RoundResult]:
    return run_rounds(AVERAGED, folder, small_settings(rounds))


def test_average_by_hand(tmp_path: Path) -> None:
    """The weight of the newest model is max(0.6, 6 / (t + 5)): 1, 6/7, 6/8, 6/9, 6/10, 0.6, ..."""
    expected = torch.zeros(())
    for number, result in enumerate(run(tmp_path), 1):
        weight = max(0.6, 6 / (number + 5))
        expected = (1 - weight) * expected + weight * get_model(result).parameters.double()
        assert torch.allclose(get_average(result.state).double(), expected, atol=1e-6)


def test_clients_train_the_newest_model(tmp_path: Path) -> None:
    """Averaging changes neither the models that clients train nor, thus, later rounds."""
    newest = Algorithm(FedAvg(), server_optimizer=DampedMomentum(averaging=1.0))
    results = run_rounds(newest, tmp_path, small_settings(8))
    for one, other in zip(run(tmp_path), results, strict=True):
        assert is_identical(get_model(one).parameters, get_model(other).parameters)
        assert is_identical(get_average(other.state), get_model(other).parameters)
        assert not other.state.averages


def test_other_server_optimizers_do_not_average(tmp_path: Path) -> None:
    results = run_rounds(Algorithm(FedAvg(), server_optimizer=Plain()), tmp_path)
    assert not results[-1].state.averages


def make_federation() -> dict[str, Any]:
    x = torch.randn(120, 6, generator=torch.Generator().manual_seed(1))
    y = x[:, :3].argmax(dim=1)
    clients = [(x[n : n + 20], y[n : n + 20]) for n in range(0, 80, 20)]
    return {"model": torch.nn.Linear(6, 3), "clients": clients, "test": (x[80:], y[80:])}


def test_average_is_tested_and_stored(tmp_path: Path) -> None:
    data = make_federation()
    states: list[RunState] = []
    result = cadis.run(
        **data,
        rounds=4,
        lr=0.5,
        out=tmp_path / "run",
        on_round=lambda round_result: states.append(round_result.state),
    )
    layout = Layout.from_tensors(result.model.state_dict(), None)
    average = states[-1].global_models["model"]
    assert is_identical(layout.pack(result.model.state_dict()).parameters, average.parameters)
    assert not torch.equal(average.parameters, states[-1].server.models["model"].parameters)
    inputs, labels = data["test"]
    accuracy = float((result.model(inputs).argmax(dim=1) == labels).float().mean())
    assert abs(result.accuracy - accuracy) < 1e-6


def test_resumed_run_has_the_same_average(tmp_path: Path) -> None:
    data = make_federation()
    torch.manual_seed(0)
    whole = cadis.run(**data, rounds=5, out=tmp_path / "whole")
    cadis.run(**data, rounds=3, out=tmp_path / "parts")
    resumed = cadis.run(**data, rounds=5, out=tmp_path / "parts", resume=True)
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert is_identical(one.detach(), other.detach())
