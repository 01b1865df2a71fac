"""Names and values that a user gives, checked in one sentence."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from cadis.core import CadisError
from cadis.training import LocalSettings

_T = TypeVar("_T")


def names_of(kind: type) -> list[str]:
    """Names of a dataclass's fields."""
    return [f.name for f in fields(kind)]


def check_names(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse unknown names, with the one that was probably meant."""
    choices = list(known)
    for name in names:
        if name not in choices:
            close = difflib.get_close_matches(str(name).lower(), choices, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(choices)}."
            raise CadisError(f"There is no {kind} '{name}'; {hint}")


def validated(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """A dataclass from values of the right or a convertible type, or one sentence."""
    names = {*names_of(kind), *names_of(LocalSettings)}
    try:
        return TypeAdapter(kind).validate_python(_split_lists(values))
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "value_error":  # our own sentence, about more than one field
            raise CadisError(str(first["ctx"]["error"])) from None
        name = [part for part in first["loc"] if part in names][-1]
        problem = first["msg"].removeprefix("Input ")
        raise CadisError(f"{name} {problem}, not {first['input']!r}.") from None


def _split_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """On the command line a list is typed with colons, as in 3:3:2:1:1."""
    ratio = values.get("ratio")
    split = {"ratio": ratio.split(":")} if isinstance(ratio, str) else {}
    return {**values, **split}
