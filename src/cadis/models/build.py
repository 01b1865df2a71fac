"""Building a network by name: a built-in network, or a network that a user's function returns."""

import inspect
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from cadis._io import (
    check_list,
    check_memory,
    format_error,
    format_value,
    is_user_code,
    load_user_code,
)
from cadis.errors import CadisError
from cadis.models.networks import MODELS

_IMAGE_SIZES = ("channels", "height", "width")
"""The sizes of an image, in the order of its dimensions."""

_ANY_SHAPE = "mlp"
"""The built-in network that accepts inputs of any shape, because it flattens them."""


def build_network(name: str, shape: Sequence[int], num_outputs: int) -> nn.Module:
    """Build a network with weights drawn from torch's global generator.

    Args:
        name: one of :data:`MODELS`, ``file.py:function`` or ``module:function``.
        shape: the shape of one input: channels, height and width of an image, or the number of
            columns of a table; empty if unknown.
        num_outputs: the number of outputs; most tasks need one per class.

    Example:
        >>> build_network("mlp", (1, 8, 8), num_outputs=10)[-1]
        Linear(in_features=200, out_features=10, bias=True)
    """
    if not isinstance(name, str) or not (name in MODELS or is_user_code(name)):
        raise CadisError(f"There is no model {format_value(name)}; choose {', '.join(MODELS)}.")
    shape = check_list("shape", shape)
    if not all(type(size) is int and size > 0 for size in (*shape, num_outputs)):
        raise CadisError(
            f"A model needs positive integers, not the shape {format_value(shape)} and "
            f"{format_value(num_outputs)} outputs."
        )
    if is_user_code(name):
        return build_user_network(name, shape, num_outputs)
    if len(shape) != len(_IMAGE_SIZES):
        if name != _ANY_SHAPE:
            raise CadisError(
                f"The model {name} takes images, not inputs of shape {tuple(shape)}; choose "
                f"{_ANY_SHAPE} or your own model."
            )
        shape = 1, 1, prod(shape)
    channels, height, width = shape
    with torch.device("meta"):  # tensors without memory
        planned = MODELS[name](channels, height, width, num_outputs)
    check_memory(
        sum(tensor.numel() * tensor.element_size() for tensor in planned.state_dict().values()),
        f"The model {name} for inputs of shape {tuple(shape)} and {num_outputs:,} outputs",
        "choose another model, or make the inputs smaller",
    )
    return MODELS[name](channels, height, width, num_outputs)


def build_user_network(
    build: str | Callable[..., nn.Module], shape: Sequence[int], num_outputs: int
) -> nn.Module:
    """Build a network with a user's function or class, or the name of one.

    See :func:`build_network` for the other arguments.
    """
    is_image = len(shape) == len(_IMAGE_SIZES)
    image_sizes = dict(zip(_IMAGE_SIZES, shape, strict=True)) if is_image else {}
    sizes = {**image_sizes, "num_features": prod(shape)} if shape else {}
    return build_user_model(build, **sizes, num_classes=num_outputs)


def build_user_model(source: str | Callable[..., nn.Module], **sizes: int) -> nn.Module:
    """Call a user's function or class that returns a model.

    Args:
        source: the function or class, or its name, such as ``mymodels:Net`` or
            ``models/mine.py:net``, which is loaded.
        sizes: ``channels``, ``height`` and ``width`` of an image, ``num_features``, the number of
            elements of an input, and ``num_classes``. Sizes for which the function has no parameter
            are not passed.
    """
    name = source if isinstance(source, str) else getattr(source, "__name__", repr(source))
    build = load_user_code(source) if isinstance(source, str) else source
    if isinstance(build, nn.Module):
        raise CadisError(f"{name} is a model; name a function or class that returns one.")
    if not callable(build):
        raise CadisError(f"{name} is not a function or class that returns a model.")
    try:
        model = build(**_select_arguments(build, sizes))
        if isinstance(model, nn.Module) and any(map(is_lazy, model.parameters())):
            image_shape = [sizes[name] for name in _IMAGE_SIZES if name in sizes]
            model(torch.zeros(2, *(image_shape or [sizes["num_features"]])))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's code may raise anything, SystemExit too
        raise CadisError(
            f"{name} could not build a model: {format_error(error)}. It can have these "
            f"parameters: {', '.join(sizes)}."
        ) from error
    if not isinstance(model, nn.Module):
        raise CadisError(f"{name} must return an nn.Module, not {type(model).__name__}.")
    return model


def _select_arguments(build: Callable[..., Any], sizes: dict[str, int]) -> dict[str, int]:
    """Return the sizes for which the function has a parameter."""
    parameters = inspect.signature(build).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return sizes
    return {key: value for key, value in sizes.items() if key in parameters}
