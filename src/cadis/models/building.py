"""A network by the name that a user types: one of ours, or a function of the user's own."""

from collections.abc import Sequence

from torch import nn

from cadis.core.user_code import is_user_code
from cadis.models.networks import MODELS
from cadis.models.user_model import own_model


def build_network(name: str, shape: Sequence[int], num_outputs: int) -> nn.Module:
    """A new network; its numbers come from torch's generator.

    Args:
        name: one of :data:`MODELS`, ``file.py:function`` or ``module:function``.
        shape: of one input: channels, height and width of pictures; rows of a table are pictures
            of one channel and one row; empty if it is not known.
        num_outputs: as many as the task wants: with most, one for each class.
    """
    sizes = (*(1,) * (3 - len(shape)), *shape)
    if is_user_code(name):
        facts = dict(zip(("channels", "height", "width"), sizes, strict=True)) if shape else {}
        return own_model(name, **facts, num_classes=num_outputs)
    channels, height, width = sizes
    return MODELS[name](channels, height, width, num_outputs)
