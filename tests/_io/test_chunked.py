"""Passes over large tensors, against passes that look at every number by itself."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cadis._io import all_finite, fresh, in_chunks, squared_distance
from cadis._io.chunked import mean_into
from cadis.algorithm import weighted_mean
from cadis.rng import one_thread

SEVERAL = 2**19 + 82
"""More numbers than two chunks hold, and not a whole number of them."""

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def random(seed: int, size: int = SEVERAL, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [*FLOATING, torch.complex64])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [0, 2**18, SEVERAL - 1])
def test_a_single_number_that_is_not_finite_is_found(
    dtype: torch.dtype, wrong: float, place: int
) -> None:
    tensor = random(0, dtype=dtype)
    assert all_finite(tensor)
    tensor[place] = wrong
    assert not all_finite(tensor)
    assert not all_finite(tensor.view(-1, 1).expand(-1, 2))


@given(st.lists(st.floats(width=32), max_size=6), st.sampled_from(FLOATING), st.integers(1, 50))
def test_finite_as_one_by_one(numbers: list[float], dtype: torch.dtype, times: int) -> None:
    tensor = torch.tensor(numbers, dtype=torch.float64).to(dtype).repeat(times)
    assert all_finite(tensor) == bool(tensor.isfinite().all())


def test_finite_numbers_of_which_the_sum_is_not() -> None:
    assert all_finite(torch.full((SEVERAL,), 3e38))
    assert all_finite(torch.full((9,), 1.7e308, dtype=torch.float64))
    assert not all_finite(torch.tensor([torch.inf, -torch.inf]))
    assert all_finite(torch.full((3,), 2**62))
    assert all_finite(torch.zeros(0))


@pytest.mark.parametrize("dtype", [*FLOATING, torch.int64, torch.bool])
@pytest.mark.parametrize("size", [0, 1, 2**22 + 3])
def test_fresh_vectors_are_as_asked_for(size: int, dtype: torch.dtype) -> None:
    vector = fresh(size, dtype)
    assert (vector.shape, vector.dtype) == ((size,), dtype)
    assert vector.data_ptr() % 64 == 0
    vector.fill_(1)
    assert bool((vector == 1).all())
    assert fresh(size, dtype).data_ptr() != vector.data_ptr() or not size


def brute_force(tensors: list[Tensor], shares: list[float]) -> Tensor:
    terms = (tensor.double() * share for tensor, share in zip(tensors, shares, strict=True))
    return sum(terms, torch.zeros(tensors[0].shape, dtype=torch.float64))


@pytest.mark.parametrize("dtype", FLOATING)
def test_mean_over_chunks(dtype: torch.dtype) -> None:
    """To two units in the last place of the largest number that went into it."""
    tensors, shares = [random(seed, dtype=dtype) for seed in range(4)], [0.1, 0.4, 0.2, 0.3]
    mean = weighted_mean([{"w": tensor} for tensor in tensors], shares)["w"]
    largest = torch.stack(tensors).double().abs().amax(dim=0)
    difference = (mean.double() - brute_force(tensors, shares)).abs()
    assert mean.dtype == dtype
    assert bool((difference <= 2 * torch.finfo(dtype).eps * largest).all())


@pytest.mark.parametrize("dtype", FLOATING)
def test_mean_of_many_equal_tensors_is_that_tensor(dtype: torch.dtype) -> None:
    tensor = random(1, dtype=dtype)
    shares = torch.rand(30, generator=torch.Generator().manual_seed(2)).double() ** 20
    mean = weighted_mean([{"w": tensor}] * 30, shares / shares.sum())["w"]
    assert torch.equal(mean, tensor)


def test_mean_of_huge_numbers_does_not_overflow() -> None:
    """Not even where their difference does; other numbers are as exact as ever."""
    for dtype, huge in ((torch.float32, 3e38), (torch.float64, 1.7e308), (torch.float16, 6e4)):
        states = [{"w": torch.tensor([sign * huge, 1.0], dtype=dtype)} for sign in (1, -1, 1)]
        mean = weighted_mean(states, [0.25, 0.5, 0.25])["w"]
        assert mean.tolist() == pytest.approx([0.0, 1.0], abs=huge * 1e-6)
        kept = weighted_mean(states, [0.5, 0.25, 0.25])["w"]
        assert kept.tolist() == pytest.approx([huge / 2, 1.0], rel=1e-3)


def test_what_weighs_nothing_has_no_part_in_the_mean() -> None:
    states = [{"w": torch.tensor([x])} for x in (3e38, 1.0, -3e38, 2.0, 3e38)]
    assert weighted_mean(states, [0, 0.5, 0, 0.5, 0])["w"].tolist() == [1.5]
    counters = [{"n": torch.tensor([x])} for x in (7, 3)]
    assert weighted_mean(counters, [0.0, 1.0])["n"].tolist() == [7]


def test_weights_that_do_not_quite_sum_to_one_do_not_scale() -> None:
    states = [{"w": torch.tensor([2.0])}, {"w": torch.tensor([2.0])}]
    assert weighted_mean(states, [0.49999, 0.5])["w"].tolist() == [2.0]


def test_the_mean_does_not_depend_on_threads_nor_on_strides() -> None:
    tensors, shares = [random(seed).view(-1, 3, 5, 7) for seed in range(3)], [0.2, 0.5, 0.3]
    found = weighted_mean([{"w": tensor} for tensor in tensors], shares)["w"]
    with one_thread():
        assert torch.equal(weighted_mean([{"w": t} for t in tensors], shares)["w"], found)
    strided = [tensor.permute(1, 0, 3, 2).contiguous().permute(1, 0, 3, 2) for tensor in tensors]
    assert torch.equal(weighted_mean([{"w": t} for t in strided], shares)["w"], found)
    place = torch.empty_like(strided[0])
    assert not place.is_contiguous()
    mean_into(place, tensors, shares)
    assert torch.equal(place, found)


@pytest.mark.parametrize("size", [0, 1, 2**15, SEVERAL])
def test_in_chunks_is_as_in_one(size: int) -> None:
    def function(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return (a.double() * b).to(a.dtype), a > b, a.double() - b

    a, b = random(0, size), torch.tensor(0.5).expand(size)
    for found, expected in zip(in_chunks(function, a, b), function(a, b), strict=True):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)


def test_squared_distance_by_hand_and_over_chunks() -> None:
    assert squared_distance(torch.tensor([1.0, 2.0]), torch.tensor([4.0, -2.0])) == 25
    assert squared_distance(torch.tensor(3.0), torch.tensor(1.0)) == 4
    assert squared_distance(torch.zeros(0), torch.zeros(0)) == 0
    a, b = random(0).view(-1, 5), random(1).view(-1, 5)
    expected = float((a.double() - b.double()).square().sum())
    assert squared_distance(a, b) == pytest.approx(expected, rel=1e-12)
