from pathlib import Path

import torch

from cadis.algorithm.methods import FedAvg, SingleSet
from cadis.models import FlatModel
from cadis.rng import generator_for
from support import (
    model_after,
    run_rounds,
    same,
    small_federation,
    small_model,
    small_settings,
    train_locally,
)


def test_is_plain_sgd_on_everybodys_data(tmp_path: Path) -> None:
    result = run_rounds(SingleSet(), tmp_path, small_settings(rounds=1))[-1]
    model = FlatModel(small_model())
    pooled = small_federation().pooled().clients[0]
    generator = generator_for(7, "train", 1, "everyone")
    train_locally(model, FedAvg(), pooled, model.state(), {}, small_settings().local, generator)
    assert same(model_after(result).parameters, model.state().parameters)
    assert len(pooled) == sum(small_federation().sizes())
    assert result.record.participants == ["everyone"]
    assert torch.tensor(result.record.weights).tolist() == [1]
