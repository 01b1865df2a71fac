"""A network by the name that a user types: one of ours, or a function of the user's own."""

import inspect
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from cadis._io import is_user_code, load_user_code, one_line
from cadis.errors import CadisError
from cadis.models.networks import MODELS

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


def own_model(name: str, **facts: int) -> nn.Module:
    """Load and call what makes a model, such as ``mymodels:Net`` or ``models/mine.py:net``.

    It is called with those of the facts (channels, height and width of pictures, num_features,
    the numbers in one input, and num_classes) that it has a parameter for.
    """
    build = load_user_code(name)
    if isinstance(build, nn.Module):
        raise CadisError(f"{name} is a model; name a function or class that makes one.")
    if not callable(build):
        raise CadisError(f"{name} is no function or class that makes a model.")
    try:
        model = build(**_wanted(build, facts))
        if isinstance(model, nn.Module) and any(map(is_lazy, model.parameters())):
            sides = [facts[side] for side in ("channels", "height", "width") if side in facts]
            model(torch.zeros(2, *(sides or [facts["num_features"]])))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a user's code may raise, SystemExit too
        raise CadisError(
            f"{name} could not make a model: {one_line(error)}. It is given those "
            f"of {', '.join(facts)} that it has a parameter for."
        ) from error
    if not isinstance(model, nn.Module):
        raise CadisError(f"{name} made no nn.Module, but: {type(model).__name__}.")
    return model


def _wanted(build: Callable[..., Any], facts: dict[str, int]) -> dict[str, int]:
    """The facts that a function has a parameter for."""
    parameters = inspect.signature(build).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return facts
    return {key: value for key, value in facts.items() if key in parameters}
