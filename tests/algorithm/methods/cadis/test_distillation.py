import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cadis.algorithm.methods.cadis.distillation import Bandwidth, distillation_loss, not_true_loss

Rows = list[list[float]]


def draw_normal(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    """Draw normal numbers in double precision."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).double() for shape in shapes]


def compute_gradient(student: torch.Tensor, *others: Any) -> torch.Tensor:
    leaf = student.clone().requires_grad_()
    return torch.autograd.grad(distillation_loss(leaf, *others).sum(), leaf)[0]


def compute_conditional(rows: Rows, bandwidth: float | None) -> Rows:
    """Return p_{j|i} computed by loops; p_{i|i} is 0."""
    size = len(rows)
    square = [[math.dist(a, b) ** 2 for b in rows] for a in rows]
    pairs = [square[i][j] for i in range(size) for j in range(size) if i != j]
    h2 = bandwidth**2 if bandwidth else sum(pairs) / len(pairs)
    kernel = [[math.exp(-square[i][j] / (2 * h2)) for j in range(size)] for i in range(size)]
    return [
        [kernel[i][j] / (sum(kernel[i]) - kernel[i][i]) if j != i else 0 for j in range(size)]
        for i in range(size)
    ]


def compute_loss_by_loops(student: Rows, teacher: Rows, bandwidth: float | None) -> float:
    p, q = compute_conditional(student, bandwidth), compute_conditional(teacher, bandwidth)
    size = len(p)
    return sum(
        q[i][j] * math.log(q[i][j] / p[i][j]) for i in range(size) for j in range(size) if i != j
    )


@given(st.integers(2, 8), st.integers(1, 5), st.integers(0, 10**6), st.sampled_from([None, 1.7]))
def test_loss_matches_brute_force(b: int, d: int, seed: int, bandwidth: float | None) -> None:
    student, teacher = draw_normal(seed, (b, d), (b, d + 1))
    loss = distillation_loss(student, teacher, bandwidth or "mean")
    expected = compute_loss_by_loops(student.tolist(), teacher.tolist(), bandwidth)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert loss.item() > -1e-12


def test_loss_by_hand() -> None:
    teacher = torch.tensor([[0.0], [1.0], [2.0]]).double()
    student = torch.tensor([[0.0], [2.0], [2.0]]).double()

    def row(near: float, far: float) -> list[float]:
        a, b = math.exp(-(near**2) / 2), math.exp(-(far**2) / 2)
        return [a / (a + b), b / (a + b)]

    def kl(q: list[float], p: list[float]) -> float:
        return sum(x * math.log(x / y) for x, y in zip(q, p, strict=True))

    first = kl(row(1, 2), row(2, 2))
    second = kl(row(1, 1), row(2, 0))
    third = kl(row(2, 1), row(2, 0))
    loss = distillation_loss(student, teacher, bandwidth=1.0)
    assert loss.item() == pytest.approx(first + second + third)


@given(st.integers(1, 9), st.integers(0, 10**6))
def test_distilling_from_itself_is_exactly_zero(b: int, seed: int) -> None:
    features = draw_normal(seed, (b, 6))[0].float()
    assert distillation_loss(features, features.clone()).item() == 0
    assert distillation_loss(features, features.clone(), 0.5).item() == 0


@pytest.mark.parametrize("size", [1, 2])
def test_loss_of_one_or_two_examples_is_zero(size: int) -> None:
    student, teacher = torch.randn(2, size, 3)
    assert distillation_loss(student, teacher).item() == 0
    assert compute_gradient(student, teacher).abs().max() < 1e-6


@pytest.mark.parametrize("bandwidth", ["mean", 0.1])
@pytest.mark.parametrize(
    "student",
    [
        torch.ones(4, 3) * 0.1,
        torch.zeros(4, 3),
        torch.tensor([[0.0], [1e-30], [1.0], [1e30]]),
        torch.tensor([[-1e38], [1e38], [0.0], [0.0]]),
        torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [5.0, 5.0]]),
    ],
)
def test_degenerate_batches_stay_finite(student: torch.Tensor, bandwidth: float) -> None:
    teacher = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    for pair in ((student, teacher), (teacher, student)):
        assert distillation_loss(*pair, bandwidth).isfinite()
        assert compute_gradient(*pair, bandwidth).isfinite().all()


def test_mean_bandwidth_does_not_depend_on_scale_and_origin() -> None:
    student, teacher = draw_normal(0, (6, 4), (6, 4))
    loss = distillation_loss(student, teacher)
    torch.testing.assert_close(distillation_loss(1000 * student + 5, teacher), loss)


def compute_loss_by_autograd(
    student: torch.Tensor, teacher: torch.Tensor, bandwidth: float | None
) -> torch.Tensor:
    """Return the loss as a graph for autograd."""

    def log_probabilities(x: torch.Tensor) -> torch.Tensor:
        square = (x[:, None] - x[None, :]).square().sum(dim=2)
        others = ~torch.eye(len(x), dtype=torch.bool)
        h2 = bandwidth**2 if bandwidth else square[others].mean().detach()
        kernel = torch.exp(-square / (2 * h2)) * others
        return torch.log((kernel / kernel.sum(dim=1, keepdim=True))[others])

    log_p, log_q = log_probabilities(student), log_probabilities(teacher).detach()
    return (log_q.exp() * (log_q - log_p)).sum()


@given(st.integers(2, 8), st.integers(1, 5), st.integers(0, 10**6), st.sampled_from([None, 1.7]))
def test_gradient_matches_autograd(b: int, d: int, seed: int, bandwidth: float | None) -> None:
    student, teacher = draw_normal(seed, (b, d), (b, d))
    student.requires_grad_()
    (expected,) = torch.autograd.grad(
        compute_loss_by_autograd(student, teacher, bandwidth), student
    )
    gradient = compute_gradient(student.detach(), teacher, bandwidth or "mean")
    torch.testing.assert_close(gradient, expected, rtol=1e-7, atol=1e-9)


def test_gradient_is_accurate_far_from_the_origin() -> None:
    student, teacher = (tensor.float() for tensor in draw_normal(0, (6, 4), (6, 4)))
    far, near = compute_gradient(student + 1000, teacher), compute_gradient(student, teacher)
    torch.testing.assert_close(far, near, rtol=1e-2, atol=1e-3)


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(0, 10**6),
    st.sampled_from(["mean", 1.7]),
)
def test_losses_of_several_clients_at_once(
    sizes: list[int], seed: int, bandwidth: Bandwidth
) -> None:
    """Losses and gradients equal those of single clients; padding has no effect."""
    student, teacher = draw_normal(seed, *[(len(sizes), max(sizes), 3)] * 2)
    row_mask = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
    losses = distillation_loss(student, teacher, bandwidth, row_mask)
    gradients = compute_gradient(student, teacher, bandwidth, row_mask)
    for index, size in enumerate(sizes):
        single = student[index, :size], teacher[index, :size], bandwidth
        torch.testing.assert_close(losses[index], distillation_loss(*single))
        torch.testing.assert_close(gradients[index, :size], compute_gradient(*single))
        assert not gradients[index, size:].any()


@given(st.integers(1, 5), st.integers(2, 6), st.integers(0, 10**6))
def test_not_true_loss_matches_brute_force(b: int, classes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    student, teacher = 3 * torch.randn(2, b, classes, generator=generator).double()
    labels = torch.randint(classes, (b,), generator=generator)
    expected = 0.0
    for p_row, q_row, label in zip(
        student.tolist(), teacher.tolist(), labels.tolist(), strict=True
    ):
        others = [c for c in range(classes) if c != label]
        p, q = (
            [math.exp(row[c]) / sum(math.exp(row[o]) for o in others) for c in others]
            for row in (p_row, q_row)
        )
        expected += sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    assert float(not_true_loss(student, teacher, labels)) == pytest.approx(expected, abs=1e-9)


def test_not_true_loss_has_no_gradient_for_the_true_class() -> None:
    student = torch.tensor([[0.5, 1.0, -2.0]], requires_grad=True)
    teacher, labels = torch.tensor([[9.0, 0.0, 1.0]]), torch.tensor([0])
    (gradient,) = torch.autograd.grad(not_true_loss(student, teacher, labels), student)
    assert gradient[0, 0] == 0
    assert gradient[0, 1] > 0 > gradient[0, 2]
    assert not_true_loss(teacher, teacher, labels) == 0
    several = not_true_loss(student.expand(4, 1, 3), teacher.expand(4, 1, 3), labels.expand(4, 1))
    assert several.shape == (4,)
