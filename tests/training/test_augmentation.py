"""Augmented images compared with all possible results, computed pixel by pixel."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cadis.errors import CadisError
from cadis.rng import derive_generator
from cadis.training.augmentation import AUGMENTATIONS, augment_inputs

TYPES = [torch.uint8, torch.float32, torch.float16, torch.float64]
for_each_name = pytest.mark.parametrize("name", AUGMENTATIONS)
sides = st.sampled_from([1, 3, 7, 8, 9, 16, 28])


def make_images(
    count: int, channels: int, height: int, width: int, dtype: torch.dtype = torch.uint8
) -> Tensor:
    """Return images whose pixels are all different and not zero, as far as bytes allow."""
    numbers = torch.arange(1, count * channels * height * width + 1) % 251 + 1
    return numbers.view(count, channels, height, width).to(dtype)


def flip_image(image: Tensor) -> Tensor:
    rows = [[list(reversed(row)) for row in channel] for channel in image.tolist()]
    return torch.tensor(rows, dtype=image.dtype)


def shift_image(image: Tensor, down: int, right: int) -> Tensor:
    """Shift an image pixel by pixel."""
    _, height, width = image.shape

    def get_pixel(channel: list[list[float]], row: int, column: int) -> float:
        is_inside = 0 <= row - down < height and 0 <= column - right < width
        return channel[row - down][column - right] if is_inside else 0

    pixels = [
        [[get_pixel(channel, row, column) for column in range(width)] for row in range(height)]
        for channel in image.tolist()
    ]
    return torch.tensor(pixels, dtype=image.dtype)


def find_image(image: Tensor, choices: list[Tensor]) -> int:
    """Return the index of the first choice that equals the image."""
    return next(n for n, choice in enumerate(choices) if torch.equal(image, choice))


def test_half_of_the_images_are_flipped() -> None:
    inputs = make_images(1, 1, 2, 3).expand(4000, 1, 2, 3)
    results = augment_inputs(inputs, ["flip"], derive_generator(0))
    count = sum(find_image(image, [inputs[0], flip_image(inputs[0])]) for image in results)
    assert count / 4000 == pytest.approx(0.5, abs=0.04)  # five standard deviations


@given(st.integers(1, 4), st.sampled_from([1, 3]), sides, sides, st.integers(0, 99))
def test_every_result_is_a_possible_one(
    count: int, channels: int, height: int, width: int, seed: int
) -> None:
    inputs = make_images(count, channels, height, width)
    flips = augment_inputs(inputs, ["flip"], derive_generator(seed))
    crops = augment_inputs(inputs, ["crop"], derive_generator(seed))
    downs = range(-(height // 8), height // 8 + 1)
    rights = range(-(width // 8), width // 8 + 1)
    for before, flip, crop in zip(inputs, flips, crops, strict=True):
        find_image(flip, [before, flip_image(before)])
        find_image(crop, [shift_image(before, down, right) for down in downs for right in rights])


def test_all_shifts_have_the_same_probability() -> None:
    """An 8 x 16 image has 3 x 5 shifts."""
    inputs = make_images(1, 1, 8, 16).expand(6000, 1, 8, 16)
    choices = [shift_image(inputs[0], down, right) for down in (-1, 0, 1) for right in range(-2, 3)]
    results = augment_inputs(inputs, ["crop"], derive_generator(1))
    counts = torch.bincount(torch.tensor([find_image(p, choices) for p in results]), minlength=15)
    assert (counts - 400).abs().max() < 5 * 400**0.5


@for_each_name
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels", [1, 3])
def test_shape_type_and_strides_are_kept(
    name: str, dtype: torch.dtype, layout: torch.memory_format, channels: int
) -> None:
    inputs = make_images(5, channels, 16, 24, dtype).contiguous(memory_format=layout)
    before = inputs.clone()
    after = augment_inputs(inputs, [name], derive_generator(2))
    assert (after.dtype, after.shape, after.stride()) == (dtype, inputs.shape, inputs.stride())
    assert torch.equal(inputs, before)
    plain = augment_inputs(inputs.contiguous(), [name], derive_generator(2))
    assert torch.equal(after, plain)


def test_several_augmentations_are_applied_in_order() -> None:
    inputs = make_images(6, 3, 16, 16)
    generator = derive_generator(3)
    expected = AUGMENTATIONS["crop"](AUGMENTATIONS["flip"](inputs, generator), generator)
    assert torch.equal(augment_inputs(inputs, ["flip", "crop"], derive_generator(3)), expected)


@for_each_name
def test_inputs_that_are_not_images_are_refused(name: str) -> None:
    inputs = torch.ones(2, 5)
    assert augment_inputs(inputs, [], derive_generator(0)) is inputs
    with pytest.raises(CadisError, match=r"Only images can be augmented, not .* \(5,\)"):
        augment_inputs(inputs, [name], derive_generator(0))
