"""Stored JSON must have the shape of the dataclass that it is read as."""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from cadis.runs.files import DamagedError

_T = TypeVar("_T")

STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}
"""What a dataclass is given as ``__pydantic_config__`` if nothing but its fields may be stored."""

_adapters: Callable[[Any], TypeAdapter[Any]] = lru_cache(TypeAdapter)
"""What reads a type; making it takes longer than using it."""


def read_as(kind: type[_T], text: str | bytes, where: object) -> _T:
    """JSON as a value of this type.

    Args:
        kind: a dataclass or any other type of values.
        text: the JSON.
        where: what holds it, for the sentence that says what is wrong with it.
    """
    try:
        value: _T = _adapters(kind).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        problem = first["msg"].removeprefix("Input ")
        raise DamagedError(
            f"{where} is damaged: {f'{place} ' if place else ''}{_lowered(problem)}."
        ) from None
    return value


def to_json(value: object) -> str:
    """A dataclass as JSON, the same text for equal values."""
    plain = _adapters(type(value)).dump_python(value, mode="json")
    return json.dumps(plain, sort_keys=True, allow_nan=False)


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
