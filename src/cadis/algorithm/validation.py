"""Validation of names and values that a user gives; an error message is one sentence."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from cadis._io import format_value
from cadis.errors import CadisError

_T = TypeVar("_T")

_MAX_CHARS = 60
"""Maximum number of characters of an invalid value in an error message."""

_INT_LIMIT = 2**63
"""Integers must be at least -2^63 and less than 2^63, so that a TOML file can store them."""

_TOO_LARGE = "should be an integer of at most 64 bits"


def get_field_names(cls: type) -> list[str]:
    """Return the names of the fields of a dataclass that are arguments of its constructor."""
    if not is_dataclass(cls):
        raise CadisError(
            f"{cls.__name__} is not a dataclass; put @dataclass(frozen=True) before it."
        )
    return [field.name for field in fields(cls) if field.init]


def get_field_types(cls: type) -> dict[str, Any]:
    """Return the type annotations of a dataclass by field name, with constraints (``Gt(0)``)."""
    try:
        return get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise CadisError(
            f"The annotations of {cls.__name__} cannot be resolved: {error}; import the name at "
            "the top of the file."
        ) from None


def is_list_type(hint: Any) -> bool:
    """Return whether an annotation is a list or tuple type."""
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_origin(plain) in (list, tuple)


def is_name_list_type(hint: Any) -> bool:
    """Return whether an annotation is a list of strings; users separate them with commas."""
    return is_list_type(hint) and str in get_args(hint)


def check_names(kind: str, names: Iterable[object], known: Iterable[str]) -> None:
    """Raise an error for an unknown name; the error suggests the most similar valid name.

    If no name is similar, the error lists all valid names.

    Args:
        kind: noun for the error message, such as "method".
        names: names to check.
        known: valid names.
    """
    choices = list(known)
    for name in names:
        if not isinstance(name, str) or name not in choices:
            text = name[:_MAX_CHARS].lower() if isinstance(name, str) else ""
            close = difflib.get_close_matches(text, choices, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(choices)}."
            raise CadisError(f"There is no {kind} {format_value(name)}; {hint}")


def join_words(words: Iterable[str]) -> str:
    """Join words with commas and "and".

    Example:
        >>> from cadis.algorithm import join_words
        >>> join_words(["one", "two", "three"])
        'one, two and three'
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def validate(cls: type[_T], values: Mapping[str, Any]) -> _T:
    """Create an object of a dataclass from values, and convert them to the types of the fields.

    Numbers must be finite and integers must fit into 64 bits, so that a TOML file can store them.

    Args:
        cls: the dataclass; its annotations may have constraints such as ``Gt(0)``.
        values: values by field name, such as strings from the command line.

    Raises:
        CadisError: if a value is invalid; the message is one sentence about the first one.

    Example:
        >>> from cadis.algorithm import validate
        >>> from cadis.algorithm.methods import FedProx
        >>> validate(FedProx, {"mu": "0.1"})
        FedProx(mu=0.1)
    """
    _check_types(cls, values)
    names = {name for each in (cls, *_find_nested(cls)) for name in get_field_names(each)}
    try:
        adapter: TypeAdapter[_T] = _make_adapter(cls)  # type: ignore[arg-type]  # hashable
        result = adapter.validate_python(_split_lists(cls, values))
    except PydanticUserError as error:
        raise _make_type_error(cls, error) from None
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "value_error":  # the class itself has raised a CadisError
            raise CadisError(str(first["ctx"]["error"])) from None
        name = [part for part in first["loc"] if part in names][-1]
        if first["type"] == "missing":
            raise CadisError(f"{name} of {cls.__name__} must be given.") from None
        problem = first["msg"].removeprefix("Input ")
        if first["type"] == "int_parsing_size":
            problem = _TOO_LARGE
        raise CadisError(f"{name} {problem}, not {format_value(first['input'])}.") from None
    for field in fields(cls):  # type: ignore[arg-type]  # get_field_names has checked it
        for name, value in _iterate_values(field.name, getattr(result, field.name)):
            _check_value(name, value)
    return result


def _check_types(cls: type, values: Mapping[str, Any]) -> None:
    """Raise an error for values that pydantic would convert: True to 1, and bytes to a string."""
    nested = {n: t for n, t in get_field_types(cls).items() if t in _find_nested(cls)}
    for field_name, hint in get_field_types(cls).items():
        if field_name in nested and isinstance(values.get(field_name), Mapping):
            _check_types(nested[field_name], values[field_name])
            continue
        for name, value in _iterate_values(field_name, values.get(field_name)):
            if isinstance(value, bool) and not _allows_bool(hint):
                raise CadisError(f"{name} should not be {value}; give a number or a text.")
            if isinstance(value, bytes):
                raise CadisError(f"{name} should be text, not the bytes {format_value(value)}.")


def _allows_bool(hint: Any) -> bool:
    """Return whether an annotation is bool, or has bool as one of its types."""
    return hint in (bool, Any, object) or any(map(_allows_bool, get_args(hint)))


@cache
def _make_adapter(cls: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(cls)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise _make_type_error(cls, error) from None


def _make_type_error(cls: type, error: Exception) -> CadisError:
    problem = str(error).partition(".")[0].replace("\n", " ")
    return CadisError(
        f"The fields of {cls.__name__} must be numbers, strings or lists of these: {problem}."
    )


def _find_nested(cls: type) -> list[type]:
    """Return the types of the fields that are dataclasses themselves."""
    hints = get_field_types(cls).values()
    return [hint for hint in hints if isinstance(hint, type) and is_dataclass(hint)]


def _iterate_values(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield each value in a field with its name; values in dataclasses and lists one by one."""
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _iterate_values(str(key), item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _iterate_values(name, item)
    else:
        yield name, value


def _check_value(name: str, value: object) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise CadisError(f"{name} should be a finite number, not {value}.")
    if isinstance(value, int) and not -_INT_LIMIT <= value < _INT_LIMIT:
        raise CadisError(f"{name} {_TOO_LARGE}, not {format_value(value)}.")
    if isinstance(value, str) and "\0" in value:
        raise CadisError(
            f"{name} should be text without the character 0, not {value[:_MAX_CHARS]!r}."
        )
    if isinstance(value, str) and value.encode(errors="replace").decode() != value:
        # Python represents bytes of a file name that are not UTF-8 as lone surrogates.
        raise CadisError(f"{name} should be valid UTF-8 text, not {format_value(value)}.")


def _split_lists(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Split strings of the command line into lists: ``3:3:2`` for numbers, ``a,b`` for names."""
    result = dict(values)
    for name, hint in get_field_types(cls).items():
        text = values.get(name)
        if isinstance(text, str) and is_list_type(hint):
            names = [part.strip() for part in text.split(",") if part.strip()]
            result[name] = names if is_name_list_type(hint) else text.split(":")
    return result
