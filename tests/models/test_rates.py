"""The learning rate of a model if nobody says, from names and from models themselves."""

from copy import deepcopy

import pytest
from torch import nn

from cadis.experiment import Settings
from cadis.models import MODELS, auto_lr

EXPECTED = {"small-cnn": 0.1, "mlp": 0.1, "cnn": 0.01, "resnet9": 0.001, "resnet18": 0.001}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_rate_of_its_name(name: str) -> None:
    model = MODELS[name](1, 8, 8, 3)
    assert auto_lr(model) == auto_lr(MODELS[name]) == EXPECTED[name]
    assert auto_lr(deepcopy(model)) == EXPECTED[name]
    assert Settings(model=name).settled(5, (1, 8)).lr == EXPECTED[name]
    assert not any("lr" in key for key in model.state_dict())


def test_all_others_have_one_rate() -> None:
    assert auto_lr(nn.Linear(3, 3)) == 0.01
    assert Settings(model="mine.py:net").settled(5, (1, 8)).lr == 0.01
    assert Settings(model="mlp", lr=0.5).settled(5, (1, 8)).lr == 0.5
