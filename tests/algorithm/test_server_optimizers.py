"""One table over all server optimisers, two steps of each by hand, and independent loops."""

from collections.abc import Callable
from math import sqrt
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from cadis.algorithm.server_optimizers import (
    SERVER_OPTIMIZERS,
    Adagrad,
    Adam,
    Momentum,
    Plain,
    ServerOptimizer,
    Yogi,
)
from cadis.types import TensorState
from parts_support import snapshot

each = pytest.mark.parametrize("optimizer", [kind() for kind in SERVER_OPTIMIZERS.values()])
seeds = st.integers(0, 10**6)
shares = st.sampled_from([0.0, 0.3, 0.9, 0.99])


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def two_steps(optimizer: ServerOptimizer) -> list[float]:
    """A single parameter: w_0 = 1; aggregated to 0.5; then to 0.25 more than what it became."""
    first, memory = optimizer.step(vector(1.0), vector(0.5), {})
    second, _ = optimizer.step(first, first + 0.25, memory)
    return [first.item(), second.item()]


def test_momentum_by_hand() -> None:
    v_1 = 1 - 0.5
    w_1 = 1 - 2.0 * v_1
    v_2 = 0.9 * v_1 + -0.25
    w_2 = w_1 - 2.0 * v_2
    assert two_steps(Momentum(server_lr=2.0, server_momentum=0.9)) == pytest.approx([w_1, w_2])


ADAM_V = 0.99 * 0.2**2 + 0.01 * 0.5**2
YOGI_V = 0.2**2 + 0.25 * 0.5**2  # delta^2 is above v: v grows
ADAGRAD_V = 0.2**2 + 0.5**2


@pytest.mark.parametrize(
    ("optimizer", "moments"),
    [
        (
            Adam(server_lr=0.3, beta1=0.9, beta2=0.99, tau=0.2),
            [(0.1 * -0.5, ADAM_V), (0.9 * 0.1 * -0.5 + 0.1 * 0.25, 0.99 * ADAM_V + 0.01 * 0.25**2)],
        ),
        (
            Yogi(server_lr=0.3, beta1=0.9, beta2=0.75, tau=0.2),  # then delta^2 is below v
            [(0.1 * -0.5, YOGI_V), (0.9 * 0.1 * -0.5 + 0.1 * 0.25, YOGI_V - 0.25 * 0.25**2)],
        ),
        (
            Adagrad(server_lr=0.3, beta1=0.0, tau=0.2),
            [(-0.5, ADAGRAD_V), (0.25, ADAGRAD_V + 0.25**2)],
        ),
    ],
)
def test_adaptive_steps_by_hand(
    optimizer: ServerOptimizer, moments: list[tuple[float, float]]
) -> None:
    """The moments m and v after each step are given."""
    (m_1, v_1), (m_2, v_2) = moments
    w_1 = 1 + 0.3 * m_1 / (sqrt(v_1) + 0.2)
    w_2 = w_1 + 0.3 * m_2 / (sqrt(v_2) + 0.2)
    assert two_steps(optimizer) == pytest.approx([w_1, w_2], rel=1e-12)


def random_rounds(seed: int, rounds: int = 4, size: int = 3) -> tuple[Tensor, list[Tensor]]:
    """A model, and what the clients of each round add to it."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(size, generator=generator, dtype=torch.float64)
    return start, list(torch.randn(rounds, size, generator=generator, dtype=torch.float64))


def walk(optimizer: ServerOptimizer, start: Tensor, updates: list[Tensor]) -> Tensor:
    memory: TensorState = {}
    for update in updates:
        start, memory = optimizer.step(start, start + update, memory)
    return start


def adam_v(v: float, square: float, beta2: float) -> float:
    return beta2 * v + (1 - beta2) * square


def yogi_v(v: float, square: float, beta2: float) -> float:
    return v + (1 - beta2) * square * (1 if v < square else -1)


@pytest.mark.parametrize(("kind", "next_v"), [(Adam, adam_v), (Yogi, yogi_v)])
@given(seeds, shares, shares, st.sampled_from([1e-3, 0.1, 0.5, 1.0]))
def test_it_is_the_papers_loop(
    kind: type[Adam],
    next_v: Callable[[float, float, float], float],
    seed: int,
    beta1: float,
    beta2: float,
    tau: float,
) -> None:
    start, updates = random_rounds(seed)
    found = walk(kind(0.1, beta1, beta2, tau), start, updates)
    for place, weight in enumerate(start.tolist()):
        w, m, v = weight, 0.0, tau**2
        for update in updates:
            delta = update[place].item()
            m = beta1 * m + (1 - beta1) * delta
            v = next_v(v, delta**2, beta2)
            w += 0.1 * m / (sqrt(v) + tau)
        assert found[place].item() == pytest.approx(w, rel=1e-9, abs=1e-12)


@given(seeds)
def test_momentum_is_sgd_of_torch_on_the_pseudo_gradient(seed: int) -> None:
    start, updates = random_rounds(seed)
    weight = start.clone().requires_grad_()
    oracle = torch.optim.SGD([weight], lr=0.7, momentum=0.9)
    for update in updates:
        weight.grad = -update
        oracle.step()
    found = walk(Momentum(0.7, 0.9), start, updates)
    assert torch.allclose(found, weight.detach(), rtol=1e-9, atol=1e-12)


@given(seeds)
def test_momentum_of_nothing_is_plain(seed: int) -> None:
    start, updates = random_rounds(seed)
    still = Momentum(server_lr=1.0, server_momentum=0.0)
    assert torch.allclose(walk(still, start, updates), walk(Plain(), start, updates), rtol=1e-12)


@each
def test_nothing_that_is_given_is_changed(optimizer: ServerOptimizer) -> None:
    sent, aggregated = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 2.5])
    _, memory = optimizer.step(sent, aggregated, {})
    given_parts = {"sent": sent, "aggregated": aggregated, **memory}
    before = snapshot(given_parts)
    optimizer.step(sent, aggregated, memory)
    assert all(torch.equal(given_parts[name], before[name]) for name in before)


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_type_of_the_model_is_kept(optimizer: ServerOptimizer, dtype: torch.dtype) -> None:
    sent, aggregated = torch.tensor([1.0, 2.0], dtype=dtype), torch.tensor([0.5, 2.5], dtype=dtype)
    new, memory = optimizer.step(sent, aggregated, {})
    assert new.dtype == dtype
    assert torch.equal(optimizer.step(sent, sent.clone(), {})[0], sent)  # nothing changed
    assert all(tensor.dtype == torch.float64 for tensor in memory.values())


@each
def test_memory_survives_saving_and_loading(optimizer: ServerOptimizer, tmp_path: Path) -> None:
    start, updates = random_rounds(seed=3)
    sent, memory = optimizer.step(start, start + updates[0], {})
    kept, _ = optimizer.step(sent, sent + updates[1], memory)
    save_file(dict(memory), tmp_path / "memory")
    again, _ = optimizer.step(sent, sent + updates[1], load_file(tmp_path / "memory"))
    assert torch.equal(kept, again)
