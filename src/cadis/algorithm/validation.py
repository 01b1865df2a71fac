"""Names and values that a user gives, checked in one sentence."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from cadis.errors import CadisError

_T = TypeVar("_T")

_LONGEST = 60
"""Letters of a wrong value that are repeated to the user."""

_LARGEST = 2**63
"""Integers that a TOML file can hold are below this, and no less than its negative."""

_TOO_LARGE = "should be an integer of at most 64 bits"


def names_of(kind: type) -> list[str]:
    """Names of a dataclass's fields, of those that are given when one is made."""
    if not is_dataclass(kind):
        raise CadisError(f"{kind.__name__} is no dataclass; put @dataclass(frozen=True) before it.")
    return [field.name for field in fields(kind) if field.init]


def hints_of(kind: type) -> dict[str, Any]:
    """The annotations of a dataclass, constraints included."""
    try:
        return get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise CadisError(
            f"The annotations of {kind.__name__} cannot be understood: {error}."
        ) from None


def is_list(hint: Any) -> bool:
    """Whether an annotation is that of a list or tuple."""
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_origin(plain) in (list, tuple)


def is_list_of_names(hint: Any) -> bool:
    """Whether it is a list of strings, which is typed with commas: they may hold colons."""
    return is_list(hint) and str in get_args(hint)


def check_names(kind: str, names: Iterable[object], known: Iterable[str]) -> None:
    """Refuse unknown names, with the one that was probably meant."""
    choices = list(known)
    for name in names:
        if not isinstance(name, str) or name not in choices:
            meant = name[:_LONGEST].lower() if isinstance(name, str) else ""
            close = difflib.get_close_matches(meant, choices, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(choices)}."
            raise CadisError(f"There is no {kind} {shown(name)}; {hint}")


def listed(names: Iterable[str]) -> str:
    """Names in a sentence: "one, two and three"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def validated(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """A dataclass from values of the right or a convertible type, or one sentence.

    Numbers must be finite and integers fit into 64 bits, so that what is accepted can be written
    to a file and read back.
    """
    names = {name for each in (kind, *_nested(kind)) for name in names_of(each)}
    try:
        adapter: TypeAdapter[_T] = _adapter(kind)  # type: ignore[arg-type]  # types are hashable
        found = adapter.validate_python(_split_lists(kind, values))
    except PydanticUserError as error:
        raise _not_understood(kind, error) from None
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "value_error":  # our own sentence, about more than one field
            raise CadisError(str(first["ctx"]["error"])) from None
        name = [part for part in first["loc"] if part in names][-1]
        if first["type"] == "missing":
            raise CadisError(f"{name} of {kind.__name__} must be given.") from None
        problem = first["msg"].removeprefix("Input ")
        if first["type"] == "int_parsing_size":
            problem = _TOO_LARGE
        raise CadisError(f"{name} {problem}, not {shown(first['input'])}.") from None
    for field in fields(kind):  # type: ignore[arg-type]  # names_of has checked it
        for name, value in _leaves(field.name, getattr(found, field.name)):
            _check_leaf(name, value)
    return found


def shown(value: object) -> str:
    """A value as it may stand in a sentence: on one line, and cut if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write out integers of thousands of digits
        return "an integer of thousands of digits"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(kind)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise _not_understood(kind, error) from None


def _not_understood(kind: type, error: Exception) -> CadisError:
    problem = str(error).partition(".")[0].replace("\n", " ")
    return CadisError(
        f"The fields of {kind.__name__} must be numbers, strings or lists of these: {problem}."
    )


def _nested(kind: type) -> list[type]:
    """Return the dataclasses among the annotations of a dataclass."""
    hints = hints_of(kind).values()
    return [hint for hint in hints if isinstance(hint, type) and is_dataclass(hint)]


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    """The single values that a field is made of, with their names."""
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(str(key), part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(name, part)
    else:
        yield name, value


def _check_leaf(name: str, value: object) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise CadisError(f"{name} should be a finite number, not {value}.")
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise CadisError(f"{name} {_TOO_LARGE}, not {shown(value)}.")
    if isinstance(value, str) and value.encode(errors="replace").decode() != value:
        # There are halves of characters, as in names of files that are not UTF-8.
        raise CadisError(f"{name} should be text that UTF-8 can hold, not {shown(value)}.")


def _split_lists(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """On the command line a list is typed with colons, as in 3:3:2, and names with commas."""
    split = dict(values)
    for name, hint in hints_of(kind).items():
        text = values.get(name)
        if isinstance(text, str) and is_list(hint):
            names = [part.strip() for part in text.split(",") if part.strip()]
            split[name] = names if is_list_of_names(hint) else text.split(":")
    return split
