from pathlib import Path

import pytest
import torch

from cadis.methods import FedAvg, FedProx, Step
from support import run_rounds, same


def test_penalty_by_hand() -> None:
    unused = torch.zeros(1)
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    step = Step(unused, unused, unused, w, torch.tensor([0.0, 4.0]), {}, {})
    penalty = FedProx(mu=0.1).penalty(step)
    assert penalty is not None
    assert penalty.item() == pytest.approx(0.1 / 2 * ((1 - 0) ** 2 + (2 - 4) ** 2))
    penalty.backward()
    assert w.grad is not None
    assert w.grad.tolist() == pytest.approx([0.1 * 1, 0.1 * -2])


def test_without_penalty_it_is_fedavg(tmp_path: Path) -> None:
    fedprox = run_rounds(FedProx(mu=0), tmp_path)[-1].state.model
    fedavg = run_rounds(FedAvg(), tmp_path)[-1].state.model
    assert same(fedprox.parameters, fedavg.parameters)


def test_a_strong_penalty_holds_clients_near(tmp_path: Path) -> None:
    def distance(method: FedAvg | FedProx) -> float:
        results = run_rounds(method, tmp_path)
        moved = results[-1].state.model.parameters - results[0].state.model.parameters
        return float(moved.norm())

    assert distance(FedProx(mu=5)) < 0.5 * distance(FedAvg())
