from pathlib import Path

import pytest
import torch

from cadis.algorithm.methods import FedAvg, FedProx
from support import model_after, run_rounds, step_of


def test_penalty_by_hand() -> None:
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    penalty = FedProx(mu=0.1).penalty(step_of(w, torch.tensor([0.0, 4.0])))
    assert penalty is not None
    assert penalty.item() == pytest.approx(0.1 / 2 * ((1 - 0) ** 2 + (2 - 4) ** 2))
    penalty.backward()
    assert w.grad is not None
    assert w.grad.tolist() == pytest.approx([0.1 * 1, 0.1 * -2])


def test_a_strong_penalty_holds_clients_near(tmp_path: Path) -> None:
    def distance(method: FedAvg | FedProx) -> float:
        results = run_rounds(method, tmp_path)
        moved = model_after(results[-1]).parameters - model_after(results[0]).parameters
        return float(moved.norm())

    assert distance(FedProx(mu=5)) < 0.5 * distance(FedAvg())
