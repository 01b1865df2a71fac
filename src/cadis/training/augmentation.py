"""Pictures changed at random while clients train, so that they see more than they have."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from cadis.errors import CadisError

Augmentation: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]
"""Pictures, (b, c, h, w), to pictures of the same shape, type and order in memory."""

_LARGEST_SHIFT = 8
"""Pictures are shifted by at most their side divided by this: 4 pixels of 32, as is usual."""


def flip(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Every picture is mirrored left to right with probability 1/2."""
    mirrored = torch.randint(2, (len(inputs), 1, 1, 1), generator=generator).bool()
    return torch.where(mirrored.to(inputs.device), inputs.flip(3), inputs)


def crop(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Every picture is shifted by up to an eighth of its sides; zeros come in at the edges."""
    number, _, height, width = inputs.shape
    down, right = height // _LARGEST_SHIFT, width // _LARGEST_SHIFT
    padded = F.pad(inputs, (right, right, down, down))
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # views, (b, c, rows, columns, h, w)
    rows = torch.randint(2 * down + 1, (number,), generator=generator)
    columns = torch.randint(2 * right + 1, (number,), generator=generator)
    shifted = windows[torch.arange(number), :, rows, columns]
    return torch.empty_like(inputs).copy_(shifted)  # with the inputs' order in memory


AUGMENTATIONS: dict[str, Augmentation] = {"flip": flip, "crop": crop}
"""By the names that users type."""


def augmented(inputs: Tensor, names: Sequence[str], generator: torch.Generator) -> Tensor:
    """The inputs of a batch after all augmentations, in the order of their names."""
    check_augmented(inputs, names)
    for name in names:
        inputs = AUGMENTATIONS[name](inputs, generator)
    return inputs


def check_augmented(inputs: Tensor, names: Sequence[str]) -> None:
    """Refuse augmentations that there are not, and inputs that are no pictures."""
    for name in names:
        if name not in AUGMENTATIONS:
            choices = ", ".join(AUGMENTATIONS)
            raise CadisError(f"There is no augmentation '{name}'; there are: {choices}.")
    if names and inputs.dim() != 4:
        raise CadisError(
            f"Only pictures can be augmented, not inputs of shape {tuple(inputs.shape[1:])}; "
            "leave augment out."
        )
