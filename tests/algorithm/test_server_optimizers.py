"""Server optimizers: two steps by hand, comparison with plain loops, and common properties."""

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
    DampedMomentum,
    Momentum,
    Plain,
    ServerOptimizer,
    Yogi,
)
from cadis.types import TensorState
from parts_support import copy_tensors

each = pytest.mark.parametrize("optimizer", [kind() for kind in SERVER_OPTIMIZERS.values()])
seeds = st.integers(0, 10**6)
betas = st.sampled_from([0.0, 0.3, 0.9, 0.99])


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def do_two_steps(optimizer: ServerOptimizer) -> list[float]:
    """Do two steps of one parameter: from w_0 = 1 with aggregated 0.5, then w_1 + 0.25."""
    first, state = optimizer.step(vector(1.0), vector(0.5), {})
    second, _ = optimizer.step(first, first + 0.25, state)
    return [first.item(), second.item()]


def test_momentum_by_hand() -> None:
    v_1 = 1 - 0.5
    w_1 = 1 - 2.0 * v_1
    v_2 = 0.9 * v_1 + -0.25
    w_2 = w_1 - 2.0 * v_2
    assert do_two_steps(Momentum(server_lr=2.0, server_momentum=0.9)) == pytest.approx([w_1, w_2])


def test_damped_momentum_by_hand() -> None:
    """From w_0 = 1, the first update has norm 0.5. The second one has norm 0.25.

    The smallest norm so far is 1, then min(1, |w_1|) = 0.5, and 5% of it is 0.025, a tenth of the
    norm of the second update. So the momentum is 0.9 / 10.
    """
    v_1 = 1 - 0.5
    w_1 = 1 - v_1
    v_2 = 0.09 * v_1 + -0.25
    assert do_two_steps(DampedMomentum(server_momentum=0.9)) == pytest.approx([w_1, w_1 - v_2])


@pytest.mark.parametrize(("norm", "length"), [(40.0, 4.0), (0.0, 1.0)])
def test_damped_momentum_limits_the_step(norm: float, length: float) -> None:
    """A step is at most 10% as long as the model; a model with a norm below 10 counts as norm 10.

    The update is 3 times as long as the limit, and so is the sum of the velocities of two rounds.
    """
    sent, target = vector(norm, 0.0), vector(norm, 3 * length)
    first, state = DampedMomentum().step(sent, target, {})
    assert first.tolist() == pytest.approx([norm, length])
    assert state["velocity"].tolist() == pytest.approx([0.0, -length])
    second, _ = DampedMomentum().step(first, first + vector(0.0, 3 * length), state)
    assert float((second - first).norm()) == pytest.approx(0.1 * max(10, float(first.norm())))


@given(seeds)
def test_momentum_of_short_steps_is_not_damped(seed: int) -> None:
    """The updates of both rounds have 1% of the norm of the model."""
    generator = torch.Generator().manual_seed(seed)
    damped, plain = DampedMomentum(server_momentum=0.7), Momentum(server_momentum=0.7)
    sent = torch.randn(20, generator=generator, dtype=torch.float64)
    states: list[TensorState] = [{}, {}]
    for _ in range(2):
        update = torch.randn(20, generator=generator, dtype=torch.float64)
        aggregated = sent + 0.01 * update * sent.norm() / update.norm()
        one, states[0] = damped.step(sent, aggregated, states[0])
        other, states[1] = plain.step(sent, aggregated, states[1])
        assert torch.equal(one, other)
        sent = one


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
    """``moments`` are the expected m and v after each step."""
    (m_1, v_1), (m_2, v_2) = moments
    w_1 = 1 + 0.3 * m_1 / (sqrt(v_1) + 0.2)
    w_2 = w_1 + 0.3 * m_2 / (sqrt(v_2) + 0.2)
    assert do_two_steps(optimizer) == pytest.approx([w_1, w_2], rel=1e-12)


def make_random_rounds(seed: int, rounds: int = 4, size: int = 3) -> tuple[Tensor, list[Tensor]]:
    """Return a model, and the mean update of each round."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(size, generator=generator, dtype=torch.float64)
    return start, list(torch.randn(rounds, size, generator=generator, dtype=torch.float64))


def run_steps(optimizer: ServerOptimizer, start: Tensor, updates: list[Tensor]) -> Tensor:
    state: TensorState = {}
    for update in updates:
        start, state = optimizer.step(start, start + update, state)
    return start


def compute_adam_v(v: float, square: float, beta2: float) -> float:
    return beta2 * v + (1 - beta2) * square


def compute_yogi_v(v: float, square: float, beta2: float) -> float:
    return v + (1 - beta2) * square * (1 if v < square else -1)


@pytest.mark.parametrize(("kind", "next_v"), [(Adam, compute_adam_v), (Yogi, compute_yogi_v)])
@given(seeds, betas, betas, st.sampled_from([1e-3, 0.1, 0.5, 1.0]))
def test_steps_equal_the_loop_of_the_paper(
    kind: type[Adam],
    next_v: Callable[[float, float, float], float],
    seed: int,
    beta1: float,
    beta2: float,
    tau: float,
) -> None:
    start, updates = make_random_rounds(seed)
    result = run_steps(kind(0.1, beta1, beta2, tau), start, updates)
    for index, weight in enumerate(start.tolist()):
        w, m, v = weight, 0.0, tau**2
        for update in updates:
            delta = update[index].item()
            m = beta1 * m + (1 - beta1) * delta
            v = next_v(v, delta**2, beta2)
            w += 0.1 * m / (sqrt(v) + tau)
        assert result[index].item() == pytest.approx(w, rel=1e-9, abs=1e-12)


@given(seeds)
def test_momentum_equals_torch_sgd_on_the_pseudo_gradient(seed: int) -> None:
    start, updates = make_random_rounds(seed)
    weight = start.clone().requires_grad_()
    oracle = torch.optim.SGD([weight], lr=0.7, momentum=0.9)
    for update in updates:
        weight.grad = -update
        oracle.step()
    result = run_steps(Momentum(0.7, 0.9), start, updates)
    assert torch.allclose(result, weight.detach(), rtol=1e-9, atol=1e-12)


@given(seeds)
def test_zero_momentum_equals_plain(seed: int) -> None:
    start, updates = make_random_rounds(seed)
    still = Momentum(server_lr=1.0, server_momentum=0.0)
    assert torch.allclose(
        run_steps(still, start, updates), run_steps(Plain(), start, updates), rtol=1e-12
    )


@each
def test_arguments_are_not_changed(optimizer: ServerOptimizer) -> None:
    sent, aggregated = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 2.5])
    _, state = optimizer.step(sent, aggregated, {})
    arguments = {"sent": sent, "aggregated": aggregated, **state}
    before = copy_tensors(arguments)
    optimizer.step(sent, aggregated, state)
    assert all(torch.equal(arguments[name], before[name]) for name in before)


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_of_the_model_is_kept(optimizer: ServerOptimizer, dtype: torch.dtype) -> None:
    sent, aggregated = torch.tensor([1.0, 2.0], dtype=dtype), torch.tensor([0.5, 2.5], dtype=dtype)
    new, state = optimizer.step(sent, aggregated, {})
    assert new.dtype == dtype
    assert torch.equal(optimizer.step(sent, sent.clone(), {})[0], sent)
    assert all(tensor.dtype == torch.float64 for tensor in state.values())


@each
def test_state_can_be_saved_and_loaded(optimizer: ServerOptimizer, tmp_path: Path) -> None:
    start, updates = make_random_rounds(seed=3)
    sent, state = optimizer.step(start, start + updates[0], {})
    kept, _ = optimizer.step(sent, sent + updates[1], state)
    save_file(dict(state), tmp_path / "state")
    again, _ = optimizer.step(sent, sent + updates[1], load_file(tmp_path / "state"))
    assert torch.equal(kept, again)
