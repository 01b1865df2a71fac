"""Augmented pictures against all that a picture could become, one by one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cadis.errors import CadisError
from cadis.rng import generator_for
from cadis.training.augmentation import AUGMENTATIONS, augmented

TYPES = [torch.uint8, torch.float32, torch.float16, torch.float64]
each = pytest.mark.parametrize("name", AUGMENTATIONS)
sides = st.sampled_from([1, 3, 7, 8, 9, 16, 28])


def pictures(
    count: int, channels: int, height: int, width: int, dtype: torch.dtype = torch.uint8
) -> Tensor:
    """No two numbers of a picture are alike, and none is zero, as far as bytes allow."""
    numbers = torch.arange(1, count * channels * height * width + 1) % 251 + 1
    return numbers.view(count, channels, height, width).to(dtype)


def flipped(picture: Tensor) -> Tensor:
    rows = [[list(reversed(row)) for row in channel] for channel in picture.tolist()]
    return torch.tensor(rows, dtype=picture.dtype)


def shifted(picture: Tensor, down: int, right: int) -> Tensor:
    """Pixel by pixel."""
    _, height, width = picture.shape

    def pixel(channel: list[list[float]], row: int, column: int) -> float:
        inside = 0 <= row - down < height and 0 <= column - right < width
        return channel[row - down][column - right] if inside else 0

    places = range(height), range(width)
    new = [
        [[pixel(channel, row, column) for column in places[1]] for row in places[0]]
        for channel in picture.tolist()
    ]
    return torch.tensor(new, dtype=picture.dtype)


def which(picture: Tensor, choices: list[Tensor]) -> int:
    """Which of the choices a picture is."""
    return next(n for n, choice in enumerate(choices) if torch.equal(picture, choice))


def test_half_of_the_pictures_are_flipped() -> None:
    inputs = pictures(1, 1, 2, 3).expand(4000, 1, 2, 3)
    found = augmented(inputs, ["flip"], generator_for(0))
    count = sum(which(picture, [inputs[0], flipped(inputs[0])]) for picture in found)
    assert count / 4000 == pytest.approx(0.5, abs=0.04)  # five deviations


@given(st.integers(1, 4), st.sampled_from([1, 3]), sides, sides, st.integers(0, 99))
def test_a_picture_becomes_one_of_all_that_it_could(
    count: int, channels: int, height: int, width: int, seed: int
) -> None:
    inputs = pictures(count, channels, height, width)
    mirrored = augmented(inputs, ["flip"], generator_for(seed))
    cropped = augmented(inputs, ["crop"], generator_for(seed))
    downs = range(-(height // 8), height // 8 + 1)
    rights = range(-(width // 8), width // 8 + 1)
    for before, flip, crop in zip(inputs, mirrored, cropped, strict=True):
        which(flip, [before, flipped(before)])
        which(crop, [shifted(before, down, right) for down in downs for right in rights])


def test_all_shifts_are_as_likely() -> None:
    """An 8 x 16 picture has 3 x 5 of them."""
    inputs = pictures(1, 1, 8, 16).expand(6000, 1, 8, 16)
    choices = [shifted(inputs[0], down, right) for down in (-1, 0, 1) for right in range(-2, 3)]
    found = augmented(inputs, ["crop"], generator_for(1))
    counts = torch.bincount(torch.tensor([which(p, choices) for p in found]), minlength=15)
    assert (counts - 400).abs().max() < 5 * 400**0.5


@each
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels", [1, 3])
def test_shape_type_and_order_in_memory_are_kept(
    name: str, dtype: torch.dtype, layout: torch.memory_format, channels: int
) -> None:
    inputs = pictures(5, channels, 16, 24, dtype).contiguous(memory_format=layout)
    before = inputs.clone()
    after = augmented(inputs, [name], generator_for(2))
    assert (after.dtype, after.shape, after.stride()) == (dtype, inputs.shape, inputs.stride())
    assert torch.equal(inputs, before)
    plain = augmented(inputs.contiguous(), [name], generator_for(2))
    assert torch.equal(after, plain)


def test_several_are_applied_one_after_another() -> None:
    inputs = pictures(6, 3, 16, 16)
    generator = generator_for(3)
    expected = AUGMENTATIONS["crop"](AUGMENTATIONS["flip"](inputs, generator), generator)
    assert torch.equal(augmented(inputs, ["flip", "crop"], generator_for(3)), expected)


@each
def test_what_is_no_picture_is_refused(name: str) -> None:
    inputs = torch.ones(2, 5)
    assert augmented(inputs, [], generator_for(0)) is inputs
    with pytest.raises(CadisError, match=r"Only pictures can be augmented, not .* \(5,\)"):
        augmented(inputs, [name], generator_for(0))
