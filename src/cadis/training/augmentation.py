"""Random augmentation of images during local training."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from cadis.errors import CadisError

Augmentation: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]
"""A function from images, (b, c, h, w), to images of the same shape, type and strides."""

_SHIFT_DIVISOR = 8
"""The maximum shift is the side of the image divided by this: 4 pixels if the side is 32."""


def flip(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image left to right with probability 1/2."""
    mask = torch.randint(2, (len(inputs), 1, 1, 1), generator=generator).bool()
    return torch.where(mask.to(inputs.device), inputs.flip(3), inputs)


def crop(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Shift each image by up to an eighth of its height and width, and pad it with zeros."""
    batch, _, height, width = inputs.shape
    max_down, max_right = height // _SHIFT_DIVISOR, width // _SHIFT_DIVISOR
    padded = F.pad(inputs, (max_right, max_right, max_down, max_down))
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # views, (b, c, rows, columns, h, w)
    rows = torch.randint(2 * max_down + 1, (batch,), generator=generator)
    columns = torch.randint(2 * max_right + 1, (batch,), generator=generator)
    crops = windows[torch.arange(batch), :, rows, columns]
    return torch.empty_like(inputs).copy_(crops)  # keeps the strides of the inputs


AUGMENTATIONS: dict[str, Augmentation] = {"flip": flip, "crop": crop}
"""The augmentations, by the names in the option ``augment``."""


def augment_inputs(inputs: Tensor, names: Sequence[str], generator: torch.Generator) -> Tensor:
    """Apply augmentations to a batch of images, in the order of their names.

    Args:
        inputs: the images, (b, c, h, w).
        names: keys of :data:`AUGMENTATIONS`.
        generator: the random generator.

    Example:
        >>> images = torch.rand(4, 3, 32, 32)
        >>> augment_inputs(images, ["flip", "crop"], torch.Generator()).shape
        torch.Size([4, 3, 32, 32])
    """
    check_augmentations(inputs, names)
    for name in names:
        inputs = AUGMENTATIONS[name](inputs, generator)
    return inputs


def check_augmentations(inputs: Tensor, names: Sequence[str]) -> None:
    """Raise a CadisError for unknown augmentations, and for inputs that are not images."""
    for name in names:
        if name not in AUGMENTATIONS:
            choices = ", ".join(AUGMENTATIONS)
            raise CadisError(f"There is no augmentation '{name}'; there are: {choices}.")
    if names and inputs.dim() != 4:
        raise CadisError(
            f"Only images can be augmented, not inputs of shape {tuple(inputs.shape[1:])}; "
            "leave the option augment out."
        )
