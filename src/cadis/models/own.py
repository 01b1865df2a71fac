"""``module:function``: a user's own model."""

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from cadis.core import CadisError


def own_model(name: str, **facts: int) -> nn.Module:
    """Import and call what makes a model, such as ``mymodels:Net``.

    It is called with those of the facts (channels, height, width, num_classes) that it has a
    parameter for. The current folder is searched first.
    """
    build = _imported(name)
    try:
        model = build(**_wanted(build, facts))
        if isinstance(model, nn.Module) and any(map(is_lazy, model.parameters())):
            model(torch.zeros(2, facts["channels"], facts["height"], facts["width"]))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a user's code may raise, SystemExit too
        raise CadisError(
            f"{name} could not make a model: {_one_line(error)}. It is given those "
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


def _imported(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").replace("/", ".")
        raise CadisError(f"Write {dotted}:{attribute}, as in an import, not {name}.")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a user's code may raise, SystemExit too
        missing = isinstance(error, ModuleNotFoundError) and error.name == module_name
        hint = "; start from the folder that it is in" if missing else ""
        problem = f"{_one_line(error)}{hint}"
        raise CadisError(f"The module {module_name} could not be imported: {problem}.") from error
    build = getattr(module, attribute, None)
    if isinstance(build, nn.Module):
        raise CadisError(f"{name} is a model; name a function or class that makes one.")
    if not callable(build):
        raise CadisError(f"The module {module_name} has no function or class '{attribute}'.")
    return build  # type: ignore[no-any-return]


def _one_line(error: BaseException) -> str:
    """What was raised, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
