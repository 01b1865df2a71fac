import pytest
import torch

from cadis.core import ModelState, generator_for
from cadis.methods import ClientUpdate, FedAvg, ServerRound


def test_mean_by_number_of_samples() -> None:
    nothing, zero = torch.zeros(0), torch.zeros(0).long()
    updates = [
        ClientUpdate("a", 30, ModelState(torch.tensor([1.0, 0.0]), nothing, zero)),
        ClientUpdate("b", 10, ModelState(torch.tensor([5.0, 4.0]), nothing, zero)),
    ]
    sent = ModelState(torch.zeros(2), nothing, zero)
    result = FedAvg().aggregate(ServerRound(1, sent, (), 9, generator_for(0)), updates, {})
    assert result.weights.tolist() == [30 / 40, 10 / 40]
    assert result.state.parameters.tolist() == pytest.approx(
        [(30 * 1 + 10 * 5) / 40, (30 * 0 + 10 * 4) / 40]
    )
