"""Chunked operations on large tensors, compared with plain elementwise ones."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cadis._io import (
    all_finite,
    allocate_vector,
    compute_squared_distance,
    estimate_squared_distance,
    map_chunks,
)
from cadis._io.chunked import write_mean
from cadis.algorithm import average_tensors
from cadis.rng import use_one_thread

SEVERAL = 2**19 + 82
"""A size of more than two chunks that is not a multiple of the chunk size."""

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def draw_vector(seed: int, size: int = SEVERAL, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [*FLOATING, torch.complex64])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("index", [0, 2**18, SEVERAL - 1])
def test_a_single_element_that_is_not_finite_is_found(
    dtype: torch.dtype, value: float, index: int
) -> None:
    tensor = draw_vector(0, dtype=dtype)
    assert all_finite(tensor)
    tensor[index] = value
    assert not all_finite(tensor)
    assert not all_finite(tensor.view(-1, 1).expand(-1, 2))


@given(st.lists(st.floats(width=32), max_size=6), st.sampled_from(FLOATING), st.integers(1, 50))
def test_all_finite_agrees_with_isfinite(
    numbers: list[float], dtype: torch.dtype, repeats: int
) -> None:
    tensor = torch.tensor(numbers, dtype=torch.float64).to(dtype).repeat(repeats)
    assert all_finite(tensor) == bool(tensor.isfinite().all())


def test_finite_elements_whose_sum_overflows_are_finite() -> None:
    assert all_finite(torch.full((SEVERAL,), 3e38))
    assert all_finite(torch.full((9,), 1.7e308, dtype=torch.float64))
    assert not all_finite(torch.tensor([torch.inf, -torch.inf]))
    assert all_finite(torch.full((3,), 2**62))
    assert all_finite(torch.zeros(0))


@pytest.mark.parametrize("dtype", [*FLOATING, torch.int64, torch.bool])
@pytest.mark.parametrize("size", [0, 1, 2**22 + 3])
def test_allocated_vectors_have_the_size_and_type_and_are_aligned(
    size: int, dtype: torch.dtype
) -> None:
    vector = allocate_vector(size, dtype)
    assert (vector.shape, vector.dtype) == ((size,), dtype)
    assert vector.data_ptr() % 64 == 0
    vector.fill_(1)
    assert bool((vector == 1).all())
    assert allocate_vector(size, dtype).data_ptr() != vector.data_ptr() or not size


def compute_mean(tensors: list[Tensor], weights: list[float]) -> Tensor:
    terms = (tensor.double() * weight for tensor, weight in zip(tensors, weights, strict=True))
    return sum(terms, torch.zeros(tensors[0].shape, dtype=torch.float64))


@pytest.mark.parametrize("dtype", FLOATING)
def test_mean_over_chunks_is_exact_up_to_rounding(dtype: torch.dtype) -> None:
    """The tolerance is two units in the last place of the largest term."""
    tensors, weights = [draw_vector(seed, dtype=dtype) for seed in range(4)], [0.1, 0.4, 0.2, 0.3]
    mean = average_tensors([{"w": tensor} for tensor in tensors], weights)["w"]
    largest = torch.stack(tensors).double().abs().amax(dim=0)
    difference = (mean.double() - compute_mean(tensors, weights)).abs()
    assert mean.dtype == dtype
    assert bool((difference <= 2 * torch.finfo(dtype).eps * largest).all())


@pytest.mark.parametrize("dtype", FLOATING)
def test_mean_of_many_equal_tensors_is_that_tensor(dtype: torch.dtype) -> None:
    tensor = draw_vector(1, dtype=dtype)
    weights = torch.rand(30, generator=torch.Generator().manual_seed(2)).double() ** 20
    mean = average_tensors([{"w": tensor}] * 30, weights / weights.sum())["w"]
    assert torch.equal(mean, tensor)


def test_mean_of_huge_numbers_does_not_overflow() -> None:
    """It does not overflow even if their difference does; other elements stay exact."""
    for dtype, huge in ((torch.float32, 3e38), (torch.float64, 1.7e308), (torch.float16, 6e4)):
        states = [{"w": torch.tensor([sign * huge, 1.0], dtype=dtype)} for sign in (1, -1, 1)]
        mean = average_tensors(states, [0.25, 0.5, 0.25])["w"]
        assert mean.tolist() == pytest.approx([0.0, 1.0], abs=huge * 1e-6)
        mean = average_tensors(states, [0.5, 0.25, 0.25])["w"]
        assert mean.tolist() == pytest.approx([huge / 2, 1.0], rel=1e-3)


def test_tensors_of_weight_zero_do_not_affect_the_mean() -> None:
    states = [{"w": torch.tensor([x])} for x in (3e38, 1.0, -3e38, 2.0, 3e38)]
    assert average_tensors(states, [0, 0.5, 0, 0.5, 0])["w"].tolist() == [1.5]
    counters = [{"n": torch.tensor([x])} for x in (7, 3)]
    assert average_tensors(counters, [0.0, 1.0])["n"].tolist() == [7]


def test_weights_that_do_not_quite_sum_to_one_do_not_scale_the_mean() -> None:
    states = [{"w": torch.tensor([2.0])}, {"w": torch.tensor([2.0])}]
    assert average_tensors(states, [0.49999, 0.5])["w"].tolist() == [2.0]


def test_the_mean_does_not_depend_on_threads_or_strides() -> None:
    tensors, weights = [draw_vector(seed).view(-1, 3, 5, 7) for seed in range(3)], [0.2, 0.5, 0.3]
    mean = average_tensors([{"w": tensor} for tensor in tensors], weights)["w"]
    with use_one_thread():
        assert torch.equal(average_tensors([{"w": t} for t in tensors], weights)["w"], mean)
    strided = [tensor.permute(1, 0, 3, 2).contiguous().permute(1, 0, 3, 2) for tensor in tensors]
    assert torch.equal(average_tensors([{"w": t} for t in strided], weights)["w"], mean)
    out = torch.empty_like(strided[0])
    assert not out.is_contiguous()
    write_mean(out, tensors, weights)
    assert torch.equal(out, mean)


@pytest.mark.parametrize("size", [0, 1, 2**15, SEVERAL])
def test_map_chunks_equals_one_call(size: int) -> None:
    def function(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return (a.double() * b).to(a.dtype), a > b, a.double() - b

    a, b = draw_vector(0, size), torch.tensor(0.5).expand(size)
    for result, expected in zip(map_chunks(function, a, b), function(a, b), strict=True):
        assert result.dtype == expected.dtype
        assert torch.equal(result, expected)


def test_squared_distance_by_hand_and_over_chunks() -> None:
    assert compute_squared_distance(torch.tensor([1.0, 2.0]), torch.tensor([4.0, -2.0])) == 25
    assert compute_squared_distance(torch.tensor(3.0), torch.tensor(1.0)) == 4
    assert compute_squared_distance(torch.zeros(0), torch.zeros(0)) == 0
    a, b = draw_vector(0).view(-1, 5), draw_vector(1).view(-1, 5)
    expected = float((a.double() - b.double()).square().sum())
    assert compute_squared_distance(a, b) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("value", [1e-3, 1.0, 1e19, 3e38])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_estimate_of_a_distance_does_not_overflow(value: float, dtype: torch.dtype) -> None:
    one, other = torch.full((2, 200_000), value, dtype=dtype), torch.zeros(2, 200_000, dtype=dtype)
    expected = 400_000 * float(one[0, 0].double()) ** 2
    assert estimate_squared_distance(one, -one) == pytest.approx(4 * expected, rel=1e-4)
    assert estimate_squared_distance(one, other) == pytest.approx(expected, rel=1e-4)
