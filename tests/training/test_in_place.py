"""Steps of large linear layers in place, against those of plain gradients."""

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
    """Uses one wide layer twice, once around it, and a small one."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.head = nn.Linear(WIDE, WIDE, bias=False), nn.Linear(WIDE, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.wide(self.wide(x).relu())
        x = x + F.linear(x, self.wide.weight)
        out: Tensor = self.head(x)
        return out


def plain_step(module: nn.Module, x: Tensor, y: Tensor) -> None:
    loss = F.cross_entropy(module(x), y)
    parameters = list(module.parameters())
    gradients = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.sub_(gradient, alpha=LR)


def step(linears: InPlaceLinears, leaves: Sequence[Tensor], loss: Tensor) -> None:
    gradients = linears.gradients(loss, leaves)
    with torch.no_grad():
        for leaf, gradient in zip(leaves, gradients, strict=True):
            if gradient is not None:
                leaf.sub_(gradient, alpha=LR)
        linears.step(LR)


@pytest.mark.parametrize("make", [Twice, lambda: nn.Sequential(nn.Linear(WIDE, 300), nn.ReLU())])
def test_steps_are_those_of_plain_gradients(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module = make()
    plain, x, y = deepcopy(module), torch.randn(8, WIDE), torch.randint(0, 3, (8,))
    linears = InPlaceLinears()
    with linears.of(module):
        for _ in range(3):
            plain_step(plain, x, y)
            step(linears, list(module.parameters()), F.cross_entropy(module(x), y))
    for ours, theirs in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_step_by_hand() -> None:
    """The gradient of sum(x w^T) by w has x in every row."""
    layer = nn.Linear(WIDE, 300, bias=False)
    before, x = layer.weight.detach().clone(), torch.arange(float(WIDE))[None]
    linears = InPlaceLinears()
    with linears.of(layer):
        (gradient,) = linears.gradients(layer(x).sum(), [layer.weight])
        with torch.no_grad():
            linears.step(LR)
    assert gradient is None  # it was never written down
    torch.testing.assert_close(layer.weight.detach(), before - LR * x)


def test_the_model_is_left_as_it_was() -> None:
    module = Twice()
    with InPlaceLinears().of(module):
        assert "forward" in vars(module.wide)
        assert "forward" not in vars(module.head)  # too small to be worth it
    assert "forward" not in vars(module.wide)
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(nn.Linear(WIDE, 300))  # whose weight is made of others
    layer(torch.zeros(1, WIDE))
    with InPlaceLinears().of(layer):
        assert "forward" not in vars(layer)


@pytest.mark.parametrize(("half", "tolerance", "number"), [(False, 1e-3, 4), (True, 0.05, 1)])
def test_others_who_take_gradients_get_them(half: bool, tolerance: float, number: int) -> None:
    """A penalty may itself contain a gradient, whose own gradient is taken then."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, 3))
    x = torch.randn(4, WIDE, requires_grad=True)
    leaves: list[Tensor] = list(module.parameters())

    def roughness() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            output = module(x)
        (slope,) = torch.autograd.grad(output.float().sum(), x, create_graph=True)
        return slope.square().sum()

    expected = torch.autograd.grad(roughness(), leaves, allow_unused=True)
    before = [leaf.detach().clone() for leaf in leaves]
    linears = InPlaceLinears()
    with linears.of(module):
        step(linears, leaves, roughness())
    for leaf, start, gradient in [*zip(leaves, before, expected, strict=True)][:number]:
        wanted = torch.zeros_like(start) if gradient is None else gradient
        assert ((start - leaf.detach()) / LR - wanted).norm() <= tolerance * wanted.norm()


def test_autocast_keeps_the_weights_precise() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(WIDE, WIDE), nn.ReLU(), nn.Linear(WIDE, 3))
    plain, x, y = deepcopy(module), torch.randn(8, WIDE), torch.randint(0, 3, (8,))
    plain_step(plain, x, y)
    linears, before = InPlaceLinears(), deepcopy(module)
    with linears.of(module), torch.autocast("cpu", dtype=torch.bfloat16):
        step(linears, list(module.parameters()), F.cross_entropy(module(x), y))
    for ours, theirs, start in zip(
        module.parameters(), plain.parameters(), before.parameters(), strict=True
    ):
        assert ours.dtype == torch.float32
        moved = (theirs - start).detach().norm()
        assert (ours - theirs).detach().norm() < 0.05 * moved
