"""``module:function`` or ``file.py:function``: a user's own model."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from cadis._io import load_user_code, one_line
from cadis.errors import CadisError


def own_model(name: str, **facts: int) -> nn.Module:
    """Load and call what makes a model, such as ``mymodels:Net`` or ``models/mine.py:net``.

    It is called with those of the facts (channels, height and width of pictures, num_features,
    the numbers in one input, and num_classes) that it has a parameter for.
    """
    build = _builder(name)
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


def _builder(name: str) -> Callable[..., Any]:
    build = load_user_code(name)
    if isinstance(build, nn.Module):
        raise CadisError(f"{name} is a model; name a function or class that makes one.")
    if not callable(build):
        raise CadisError(f"{name} is no function or class that makes a model.")
    return build  # type: ignore[no-any-return]
