"""In-place steps of large linear layers, compared with steps along explicit gradients."""

from collections.abc import Sequence
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cadis.training.fast.in_place import InPlaceLinears

LR = 0.1
WIDE = 400  # 400 x 300 is large, 300 x 3 is not


class Twice(nn.Module):
    """A model that calls a wide layer twice, and uses its weight once more without the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.head = nn.Linear(WIDE, WIDE, bias=False), nn.Linear(WIDE, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.wide(self.wide(x).relu())
        x = x + F.linear(x, self.wide.weight)
        out: Tensor = self.head(x)
        return out


def take_plain_step(module: nn.Module, x: Tensor, y: Tensor) -> None:
    loss = F.cross_entropy(module(x), y)
    parameters = list(module.parameters())
    gradients = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.sub_(gradient, alpha=LR)


def take_step(linears: InPlaceLinears, leaves: Sequence[Tensor], loss: Tensor) -> None:
    gradients = linears.compute_gradients(loss, leaves)
    with torch.no_grad():
        for leaf, gradient in zip(leaves, gradients, strict=True):
            if gradient is not None:
                leaf.sub_(gradient, alpha=LR)
        linears.step(LR)


@pytest.mark.parametrize("make", [Twice, lambda: nn.Sequential(nn.Linear(WIDE, 300), nn.ReLU())])
def test_steps_equal_those_of_explicit_gradients(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module = make()
    plain, x, y = deepcopy(module), torch.randn(8, WIDE), torch.randint(0, 3, (8,))
    linears = InPlaceLinears()
    with linears.patch(module):
        for _ in range(3):
            take_plain_step(plain, x, y)
            take_step(linears, list(module.parameters()), F.cross_entropy(module(x), y))
    for ours, theirs in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_step_equals_a_hand_computed_one() -> None:
    """The gradient of sum(x w^T) by w has x in every row."""
    layer = nn.Linear(WIDE, 300, bias=False)
    before, x = layer.weight.detach().clone(), torch.arange(float(WIDE))[None]
    linears = InPlaceLinears()
    with linears.patch(layer):
        (gradient,) = linears.compute_gradients(layer(x).sum(), [layer.weight])
        with torch.no_grad():
            linears.step(LR)
    assert gradient is None  # only its factors are stored
    torch.testing.assert_close(layer.weight.detach(), before - LR * x)


def test_patching_is_undone_and_skips_unsuitable_layers() -> None:
    module = Twice()
    with InPlaceLinears().patch(module):
        assert "forward" in vars(module.wide)
        assert "forward" not in vars(module.head)  # too small
    assert "forward" not in vars(module.wide)
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(nn.Linear(WIDE, 300))  # computes its weight
    layer(torch.zeros(1, WIDE))
    with InPlaceLinears().patch(layer):
        assert "forward" not in vars(layer)


@pytest.mark.parametrize(("half", "tolerance", "number"), [(False, 1e-3, 4), (True, 0.05, 1)])
def test_second_derivatives_are_correct(half: bool, tolerance: float, number: int) -> None:
    """A penalty may contain a gradient, and is then differentiated itself."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, 3))
    x = torch.randn(4, WIDE, requires_grad=True)
    leaves: list[Tensor] = list(module.parameters())

    def compute_penalty() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            output = module(x)
        (grad,) = torch.autograd.grad(output.float().sum(), x, create_graph=True)
        return grad.square().sum()

    gradients = torch.autograd.grad(compute_penalty(), leaves, allow_unused=True)
    before = [leaf.detach().clone() for leaf in leaves]
    linears = InPlaceLinears()
    with linears.patch(module):
        take_step(linears, leaves, compute_penalty())
    for leaf, start, gradient in [*zip(leaves, before, gradients, strict=True)][:number]:
        expected = torch.zeros_like(start) if gradient is None else gradient
        assert ((start - leaf.detach()) / LR - expected).norm() <= tolerance * expected.norm()


def test_autocast_keeps_weights_in_float32() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(WIDE, WIDE), nn.ReLU(), nn.Linear(WIDE, 3))
    plain, x, y = deepcopy(module), torch.randn(8, WIDE), torch.randint(0, 3, (8,))
    take_plain_step(plain, x, y)
    linears, before = InPlaceLinears(), deepcopy(module)
    with linears.patch(module), torch.autocast("cpu", dtype=torch.bfloat16):
        take_step(linears, list(module.parameters()), F.cross_entropy(module(x), y))
    for ours, theirs, start in zip(
        module.parameters(), plain.parameters(), before.parameters(), strict=True
    ):
        assert ours.dtype == torch.float32
        step_size = (theirs - start).detach().norm()
        assert (ours - theirs).detach().norm() < 0.05 * step_size
