"""``module:function``: a user's own model."""

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from cadis.core import CadisError


def own_model(name: str, **facts: int) -> nn.Module:
    """Import and call what makes a model, such as ``mymodels:Net``.

    It is called with those of the facts (channels, height, width, num_classes) that it has a
    parameter for. The current folder is searched first.
    """
    build = _imported(name)
    try:
        parameters = inspect.signature(build).parameters
        model = build(**{key: value for key, value in facts.items() if key in parameters})
    except Exception as error:  # whatever a user's code may raise
        raise CadisError(
            f"{name} could not make a model: {type(error).__name__}: {error}. It is given those "
            f"of {', '.join(facts)} that it has a parameter for."
        ) from error
    if not isinstance(model, nn.Module):
        raise CadisError(f"{name} made a {type(model).__name__}, not an nn.Module.")
    return model


def _imported(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = import_module(module_name)
    except Exception as error:
        raise CadisError(
            f"The module {module_name} could not be imported: {type(error).__name__}: {error}; "
            "start from the folder that it is in."
        ) from error
    build = getattr(module, attribute, None)
    if not callable(build):
        raise CadisError(f"The module {module_name} has no function or class '{attribute}'.")
    return build  # type: ignore[no-any-return]
