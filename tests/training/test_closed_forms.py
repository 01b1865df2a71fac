"""Closed-form gradients equal those of autograd, and belong to one exact class."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from cadis.algorithm import BaseMethod, Step
from cadis.algorithm.methods import SCAFFOLD, FedAT, FedAvg, FedDyn, FedProx
from cadis.training.fast.closed_forms import parameter_gradient, takes_stacks
from support import models_after, run_rounds, same, small_settings


@pytest.mark.parametrize("method", [FedProx(), FedAT(), FedDyn(), SCAFFOLD()])
@pytest.mark.parametrize("remembers", [False, True])
def test_a_closed_form_is_the_gradient_of_the_penalty(method: BaseMethod, remembers: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    w, w_t, remembered, sent = (torch.randn(12, generator=generator) for _ in range(4))
    nothing, labels = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)
    memory = {"gradient": remembered, "control": remembered} if remembers else {}
    leaf = w.clone().requires_grad_()
    step = Step(nothing, nothing, labels, leaf, w_t, {"control": sent}, {}, memory)
    penalty = method.penalty(step)
    assert penalty is not None
    (expected,) = torch.autograd.grad(penalty, leaf)
    gradient = parameter_gradient(method, method.penalty)
    assert gradient is not None
    with torch.no_grad():
        found = gradient(step)
    assert found is not None
    assert torch.equal(found, expected)  # a run is the same whichever is used
    assert torch.equal(leaf, w)


@dataclass(frozen=True)
class Other(FedProx):
    """Derives from FedProx, with another penalty."""

    name: ClassVar[str] = "other"

    def penalty(self, step: Step) -> Tensor | None:
        return 0 * step.parameters.sum()


def test_a_subclass_has_no_closed_form(tmp_path: Path) -> None:
    assert parameter_gradient(Other(), Other().penalty) is None
    assert not takes_stacks(Other())
    for stack in (False, True):
        settings = replace(small_settings(), stack=stack)
        other, plain = (run_rounds(m, tmp_path, settings)[-1] for m in (Other(mu=5.0), FedAvg()))
        assert same(models_after(other)[0].parameters, models_after(plain)[0].parameters)


def test_a_closed_form_is_for_the_methods_own_penalty_only() -> None:
    method = FedProx()
    assert parameter_gradient(method, Other().penalty) is None
    assert parameter_gradient(method, None) is None


@dataclass(frozen=True)
class Scaled(BaseMethod):
    """Multiplies the logits by the mean square of the parameters, in ``calibrate``."""

    name: ClassVar[str] = "scaled"

    def calibrate(self, step: Step) -> Tensor:
        scale = 1 + step.parameters.square().mean(dim=-1)
        return step.logits * scale[..., None, None]


@dataclass(frozen=True)
class ScaledByPenalty(Scaled):
    """The same with a penalty that is 0, so that the parameters are differentiated anyway."""

    name: ClassVar[str] = "scaled-by-penalty"

    def penalty(self, step: Step) -> Tensor | None:
        return 0 * step.parameters.sum(dim=-1)


def test_gradients_through_the_parameters_in_calibrate_are_used(tmp_path: Path) -> None:
    """Plain SGD once lost them: it differentiated by the parameters only with a penalty."""
    one_by_one = replace(small_settings(), stack=False)
    runs = [
        run_rounds(m, tmp_path, one_by_one)[-1] for m in (Scaled(), ScaledByPenalty(), FedAvg())
    ]
    scaled, expected, plain = (models_after(run)[0].parameters for run in runs)
    torch.testing.assert_close(scaled, expected)
    assert not torch.allclose(scaled, plain)
    stacked = run_rounds(Scaled(), tmp_path, small_settings())[-1]
    torch.testing.assert_close(models_after(stacked)[0].parameters, scaled, rtol=1e-4, atol=1e-5)
