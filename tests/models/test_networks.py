from copy import deepcopy
from itertools import pairwise

import pytest
import torch
from torch import nn

from cadis.experiment import Settings
from cadis.models import MODELS, FlatModel, cnn, get_auto_lr, mlp, resnet9, resnet18

LEARNING_RATES = {"small-cnn": 0.1, "mlp": 0.1, "cnn": 0.01, "resnet9": 0.001, "resnet18": 0.001}
"""The default learning rate of each built-in model."""


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (cnn(1, 28, 28, 10), 1_663_370),  # McMahan et al. 2017
        (mlp(1, 28, 28, 10), 199_210),  # McMahan et al. 2017
        (resnet18(3, 224, 224, 1000), 11_689_512),  # torchvision's documentation
    ],
)
def test_models_have_the_published_number_of_parameters(model: nn.Module, size: int) -> None:
    assert sum(p.numel() for p in model.parameters()) == size


def test_resnet9_has_the_number_of_parameters_computed_by_hand() -> None:
    # Eight 3 x 3 convolutions without bias, batch norm (weight and bias) after each, 256 -> 10.
    channels = [3, 32, 64, 64, 64, 128, 256, 256, 256]
    expected = sum(9 * a * b + 2 * b for a, b in pairwise(channels)) + 256 * 10 + 10
    model = resnet9(3, 32, 32, 10)
    assert sum(p.numel() for p in model.parameters()) == expected
    layout = FlatModel(model).layout
    assert layout.head is not None
    assert layout.shapes[layout.head.parts[0]] == (10, 256)


def test_resnets_add_their_shortcuts() -> None:
    """If the last batch norm of a block has weight 0, the block returns its shortcut."""
    block = resnet9(3, 32, 32, 10).get_submodule("7")
    nn.init.zeros_(block.get_parameter("body.4.weight"))
    x = torch.randn(2, 64, 4, 4)
    assert torch.equal(block(x), x)
    model = resnet18(3, 224, 224, 10)
    first, second = model.get_submodule("layer2.0"), model.get_submodule("layer2.1")
    for layer in (first, second):
        nn.init.zeros_(layer.get_parameter("bn2.weight"))
    x = torch.randn(2, 64, 8, 8)
    assert torch.equal(first(x), first.get_submodule("downsample")(x).relu())
    x = torch.randn(2, 128, 4, 4).relu()
    assert torch.equal(second(x), x)


def test_resnet18_downsamples_only_large_images_at_first() -> None:
    for size, expected in ((224, 7), (64, 2), (32, 4)):
        shapes: list[torch.Size] = []
        model = resnet18(3, size, size, 10).eval()
        layer = model.get_submodule("layer4")
        layer.register_forward_hook(lambda *call, to=shapes: to.append(call[2].shape))
        model(torch.zeros(1, 3, size, size))
        assert shapes[0] == (1, 512, expected, expected)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_accepts_its_inputs_and_has_its_default_learning_rate(name: str) -> None:
    assert MODELS[name](3, 12, 16, 7)(torch.zeros(2, 3, 12, 16)).shape == (2, 7)
    model = MODELS[name](1, 8, 8, 3)
    assert get_auto_lr(model) == get_auto_lr(MODELS[name]) == LEARNING_RATES[name]
    assert get_auto_lr(deepcopy(model)) == LEARNING_RATES[name]
    assert Settings(model=name).resolve_auto(5, (1, 8, 8)).lr == LEARNING_RATES[name]
    assert not any("lr" in key for key in model.state_dict())


def test_user_models_have_one_default_learning_rate() -> None:
    assert get_auto_lr(nn.Linear(3, 3)) == 0.01
    assert Settings(model="mine.py:net").resolve_auto(5, (1, 8, 8)).lr == 0.01
    assert Settings(model="mlp", lr=0.5).resolve_auto(5, (1, 8, 8)).lr == 0.5


@pytest.mark.parametrize(("height", "pool"), [(8, 2), (7, 2)])
def test_pooling_before_relu_changes_no_output_and_no_gradient(height: int, pool: int) -> None:
    """This includes windows in which all values are negative or equal."""
    x = torch.randn(4, 3, height, height)
    x[0], x[1] = -x[0].abs(), x[1].round()
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    first = nn.Sequential(nn.MaxPool2d(pool), nn.ReLU())(ours)
    second = nn.Sequential(nn.ReLU(), nn.MaxPool2d(pool))(theirs)
    assert torch.equal(first, second)
    weights = torch.randn_like(first)
    for output in (first, second):
        (output * weights).sum().backward()
    assert torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type]
