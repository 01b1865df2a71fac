import pytest
import torch

from cadis.algorithm import ServerRound
from cadis.algorithm.methods import FedAvg
from cadis.rng import generator_for
from cadis.types import ModelState
from support import state_of, update_of


def test_mean_by_number_of_samples() -> None:
    nothing, zero = torch.zeros(0), torch.zeros(0).long()
    updates = [
        update_of("a", 30, ModelState(torch.tensor([1.0, 0.0]), nothing, zero)),
        update_of("b", 10, ModelState(torch.tensor([5.0, 4.0]), nothing, zero)),
    ]
    sent = ModelState(torch.zeros(2), nothing, zero)
    server_round = ServerRound(1, (), 9, generator_for(0))
    result = FedAvg().aggregate(server_round, updates, state_of(sent))
    assert result.weights.tolist() == [30 / 40, 10 / 40]
    assert result.models["model"].parameters.tolist() == pytest.approx(
        [(30 * 1 + 10 * 5) / 40, (30 * 0 + 10 * 4) / 40]
    )
