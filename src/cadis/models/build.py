"""A network by the name that a user types: one of ours, or a function of the user's own."""

from collections.abc import Sequence
from math import prod

from torch import nn

from cadis._io import is_user_code
from cadis.errors import CadisError
from cadis.models.networks import MODELS
from cadis.models.user_model import own_model

_SIDES = ("channels", "height", "width")

_ANY_SHAPE = "mlp"
"""Our network that takes inputs as a vector, whatever they are."""


def build_network(name: str, shape: Sequence[int], num_outputs: int) -> nn.Module:
    """A new network; its numbers come from torch's generator.

    Args:
        name: one of :data:`MODELS`, ``file.py:function`` or ``module:function``.
        shape: of one input: channels, height and width of a picture, or the numbers in a row;
            empty if it is not known.
        num_outputs: as many as the task wants: with most, one for each class.
    """
    if is_user_code(name):
        sides = dict(zip(_SIDES, shape, strict=True)) if len(shape) == len(_SIDES) else {}
        facts = {**sides, "num_features": prod(shape)} if shape else {}
        return own_model(name, **facts, num_classes=num_outputs)
    if len(shape) != len(_SIDES):
        if name != _ANY_SHAPE:
            raise CadisError(
                f"{name} is made for pictures, not for inputs of shape {tuple(shape)}; choose "
                f"{_ANY_SHAPE}, or one of your own."
            )
        shape = 1, 1, prod(shape)
    channels, height, width = shape
    return MODELS[name](channels, height, width, num_outputs)
