"""SGD against ``torch.optim.SGD``, step by step."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import cadis
from cadis.algorithm.local_optimizers import SGD
from support import run_small

seeds = st.integers(0, 10**6)
momenta = st.sampled_from([0.0, 0.5, 0.9])
decays = st.sampled_from([0.0, 5e-4, 0.1])


@given(seeds, momenta, decays, st.sampled_from([torch.float32, torch.float64]))
def test_each_step_equals_torch(
    seed: int, momentum: float, weight_decay: float, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(seed)
    ours = torch.randn(6, generator=generator, dtype=dtype)
    theirs = ours.clone().requires_grad_()
    oracle = torch.optim.SGD([theirs], lr=0.1, momentum=momentum, weight_decay=weight_decay)
    optimizer, state = SGD(momentum, weight_decay), dict[str, Tensor]()
    for _ in range(5):
        gradient = torch.randn(6, generator=generator, dtype=dtype)
        theirs.grad = gradient.clone()
        oracle.step()
        optimizer.step(ours, gradient, 0.1, state)
        torch.testing.assert_close(ours, theirs.detach())


def test_two_steps_by_hand() -> None:
    weight, state = torch.tensor([1.0], dtype=torch.float64), dict[str, Tensor]()
    optimizer = SGD(momentum=0.5, weight_decay=0.1)
    optimizer.step(weight, torch.tensor([2.0], dtype=torch.float64), 0.1, state)
    v_1 = 2 + 0.1 * 1
    w_1 = 1 - 0.1 * v_1
    assert weight.item() == pytest.approx(w_1)
    optimizer.step(weight, torch.tensor([-1.0], dtype=torch.float64), 0.1, state)
    v_2 = 0.5 * v_1 + (-1 + 0.1 * w_1)
    assert weight.item() == pytest.approx(w_1 - 0.1 * v_2)


def test_a_plain_step_is_w_minus_lr_times_gradient() -> None:
    plain = [SGD(), SGD(lr_decay=0.9), SGD(momentum=0.9), SGD(weight_decay=1e-4), Halved()]
    assert [optimizer.is_plain for optimizer in plain] == [True, True, False, False, False]
    weight, state = torch.tensor([1.0, 2.0]), dict[str, Tensor]()
    SGD().step(weight, torch.tensor([4.0, -4.0]), 0.25, state)
    assert weight.tolist() == [1 - 0.25 * 4, 2 + 0.25 * 4]
    assert not state


def test_learning_rate_decays_per_round() -> None:
    optimizer = SGD(lr_decay=0.5)
    assert [optimizer.compute_lr(0.8, number) for number in (1, 2, 3)] == [0.8, 0.4, 0.2]
    assert SGD().compute_lr(0.8, 1000) == 0.8


def test_gradient_buffer_may_be_reused() -> None:
    weight, buffer, state = torch.tensor([1.0]), torch.zeros(1), dict[str, Tensor]()
    for number in (1.0, 2.0):
        SGD(momentum=0.5).step(weight, buffer.fill_(number), 0.25, state)
    assert weight.item() == 1 - 0.25 * 1 - 0.25 * (0.5 * 1 + 2)


@dataclass(frozen=True)
class Halved(SGD):
    """SGD with half of the gradient."""

    name: ClassVar[str] = "halved"

    def step(
        self, parameters: Tensor, gradient: Tensor, lr: float, state: dict[str, Tensor]
    ) -> None:
        super().step(parameters, gradient / 2, lr, state)


def test_step_of_a_derived_class_is_used() -> None:
    def train(optimizer: SGD, lr: float) -> Tensor:
        options = {"local_optimizer": optimizer, "lr": lr, "method": "fedavg"}
        result = run_small(rounds=1, epochs=1, workers=1, **options)
        return torch.cat([p.flatten() for p in result.model.parameters()]).detach()

    assert torch.allclose(train(Halved(), 0.2), train(SGD(), 0.1), atol=1e-6)


@dataclass(frozen=True)
class Returned(SGD):
    """SGD that returns new parameters instead of changing them in place."""

    name: ClassVar[str] = "returned"

    def step(
        self, parameters: Tensor, gradient: Tensor, lr: float, state: dict[str, Tensor]
    ) -> Any:
        del state
        return parameters - lr * gradient


def test_step_that_returns_parameters_is_rejected() -> None:
    with pytest.raises(cadis.RunError, match=r"returned.step must change .* in place.* not a Tens"):
        run_small(rounds=1, workers=1, local_optimizer=Returned())
