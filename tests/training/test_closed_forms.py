"""Closed-form gradients equal those of autograd, and are used for the exact class only."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from cadis.algorithm import BaseMethod, Step
from cadis.algorithm.methods import SCAFFOLD, FedAT, FedAvg, FedDyn, FedProx
from cadis.training.fast.closed_forms import find_parameter_gradient, supports_stacks
from support import get_models, is_identical, run_rounds, small_settings


@pytest.mark.parametrize("method", [FedProx(), FedAT(), FedDyn(), SCAFFOLD()])
@pytest.mark.parametrize("has_state", [False, True])
def test_a_closed_form_is_the_gradient_of_the_penalty(method: BaseMethod, has_state: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    w, w_t, client_tensor, control = (torch.randn(12, generator=generator) for _ in range(4))
    unused, labels = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)
    state = {"gradient": client_tensor, "control": client_tensor} if has_state else {}
    leaf = w.clone().requires_grad_()
    step = Step(unused, unused, labels, leaf, w_t, {"control": control}, {}, state)
    penalty = method.penalty(step)
    assert penalty is not None
    (expected,) = torch.autograd.grad(penalty, leaf)
    closed_form = find_parameter_gradient(method, method.penalty)
    assert closed_form is not None
    with torch.no_grad():
        gradient = closed_form(step)
    assert gradient is not None
    assert torch.equal(gradient, expected)  # bit for bit, so that a run does not depend on it
    assert torch.equal(leaf, w)


@dataclass(frozen=True)
class Other(FedProx):
    """A subclass of FedProx with another penalty."""

    name: ClassVar[str] = "other"

    def penalty(self, step: Step) -> Tensor | None:
        return 0 * step.parameters.sum()


def test_a_subclass_has_no_closed_form(tmp_path: Path) -> None:
    assert find_parameter_gradient(Other(), Other().penalty) is None
    assert not supports_stacks(Other())
    for stack in (False, True):
        settings = replace(small_settings(), stack=stack)
        other, plain = (run_rounds(m, tmp_path, settings)[-1] for m in (Other(mu=5.0), FedAvg()))
        assert is_identical(get_models(other)[0].parameters, get_models(plain)[0].parameters)


def test_a_closed_form_is_for_the_methods_own_penalty_only() -> None:
    method = FedProx()
    assert find_parameter_gradient(method, Other().penalty) is None
    assert find_parameter_gradient(method, None) is None


@dataclass(frozen=True)
class Scaled(BaseMethod):
    """A method that scales the logits by the mean square of the parameters, in ``calibrate``."""

    name: ClassVar[str] = "scaled"

    def calibrate(self, step: Step) -> Tensor:
        scale = 1 + step.parameters.square().mean(dim=-1)
        return step.logits * scale[..., None, None]


@dataclass(frozen=True)
class ScaledByPenalty(Scaled):
    """The same method with a penalty of 0, which makes autograd differentiate the parameters."""

    name: ClassVar[str] = "scaled-by-penalty"

    def penalty(self, step: Step) -> Tensor | None:
        return 0 * step.parameters.sum(dim=-1)


def test_gradients_through_the_parameters_in_calibrate_are_used(tmp_path: Path) -> None:
    """Regression test: plain SGD ignored these gradients for methods without a penalty."""
    one_by_one = replace(small_settings(), stack=False)
    runs = [
        run_rounds(m, tmp_path, one_by_one)[-1] for m in (Scaled(), ScaledByPenalty(), FedAvg())
    ]
    scaled, expected, plain = (get_models(run)[0].parameters for run in runs)
    torch.testing.assert_close(scaled, expected)
    assert not torch.allclose(scaled, plain)
    stacked = run_rounds(Scaled(), tmp_path, small_settings())[-1]
    torch.testing.assert_close(get_models(stacked)[0].parameters, scaled, rtol=1e-4, atol=1e-5)
