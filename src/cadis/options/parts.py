"""Methods and partitions as options: a name, and a table of parameters."""

from collections.abc import Mapping
from typing import Any

import tomli_w

from cadis.core import CadisError
from cadis.methods import METHODS, Method
from cadis.options.validation import names_of, validated
from cadis.partition import Partitioner


def options_of(method: Method, settings: Mapping[str, Any], *parts: Partitioner) -> dict[str, Any]:
    """Settings, the method's name, and a table of parameters for each part."""
    everything: tuple[Method | Partitioner, ...] = (method, *parts)
    tables = {part.name: parameters_of(part) for part in everything}
    return {"method": method.name, **settings, **tables}


def parameters_of(part: Method | Partitioner) -> dict[str, Any]:
    """A part's parameters by name."""
    return {name: getattr(part, name) for name in names_of(type(part))}


def checked_method(method: Method) -> Method:
    """A user's method with its parameters checked."""
    if isinstance(method, type):
        raise CadisError(f"Give a method such as {method.__name__}(), not its class.")
    checked: Method = validated(type(method), parameters_of(method))
    for name, value in parameters_of(checked).items():
        try:
            tomli_w.dumps({} if value is None else {name: value})
        except TypeError:
            raise CadisError(
                f"{name} of {checked.name} is a {type(value).__name__}, which config.toml cannot "
                "hold; make it a number, a string or a list of these."
            ) from None
    return checked


def method_from(options: Mapping[str, Any]) -> Method:
    """The method of a stored ``config.toml``."""
    name = options["method"]
    return METHODS[name](**options.get(name, {}))
