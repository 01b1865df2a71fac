"""Validation of arguments of public functions that are not options or parameters of parts."""

import operator
import os
from collections.abc import Iterable, Mapping
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import Any

from cadis._io.files import expand_home
from cadis._io.memory import take_at_most
from cadis.errors import CadisError

_MAX_ENTRIES = 1_000_000
"""Maximum length of a list in an argument; generators may be endless."""

_MAX_TARGETS = 100

_MAX_CHARS = 60
"""Maximum number of characters of an invalid value in an error message."""


def format_value(value: object) -> str:
    """Format a value for an error message; shorten it if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not format integers with thousands of digits
        return "an integer of thousands of digits"
    text = text.replace("\n", " ")
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."


def check_list(name: str, value: object, limit: int = _MAX_ENTRIES) -> list[Any]:
    """Return an argument as a list; raise an error if it is not a list, or is too long.

    Args:
        name: name of the argument.
        value: value of the argument; a string or a mapping is not a list.
        limit: maximum number of entries.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise CadisError(f"{name} should be a list, not {format_value(value)}.")
    try:
        return take_at_most(value, limit, name)
    except TypeError:  # such as a tensor without dimensions
        raise CadisError(f"{name} should be a list, not {format_value(value)}.") from None


def check_num_runs(name: str, value: object, limit: int) -> int:
    """Return an argument that is a number of runs, from 1 to ``limit``."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if isinstance(value, bool) or not 1 <= number <= limit:
        raise CadisError(
            f"{name} should be an integer from 1 to {limit:,}, not {format_value(value)}; a study "
            f"can have {limit:,} runs at most."
        )
    return number


def check_targets(value: object) -> tuple[float, ...]:
    """Return accuracies above 0, and at most 1, sorted and without repetitions."""
    targets = check_list("targets", value, _MAX_TARGETS)
    for target in targets:
        is_number = isinstance(target, Real) and not isinstance(target, bool)
        if not is_number or not isfinite(target) or not 0 < target <= 1:
            raise CadisError(f"A target is an accuracy such as 0.9, not {format_value(target)}.")
    return tuple(sorted({float(target) for target in targets}))


def check_flag(name: str, value: object, optional: bool = False) -> None:
    """Raise an error unless an argument is True or False, or None if ``optional``."""
    if not isinstance(value, bool) and not (optional and value is None):
        choices = "True, False or None" if optional else "True or False"
        raise CadisError(f"{name} should be {choices}, not {format_value(value)}.")


def check_text(name: str, value: object) -> None:
    """Raise an error unless an argument is a string or None."""
    if value is not None and not isinstance(value, str):
        raise CadisError(f"{name} should be a string or None, not {format_value(value)}.")


def check_function(name: str, value: object) -> None:
    """Raise an error unless an argument is a function or None."""
    if value is not None and not callable(value):
        raise CadisError(f"{name} should be a function or None, not {format_value(value)}.")


def check_folder(name: str, value: object) -> Path | None:
    """Return an argument that is the path of a folder, or None."""
    if value is None:
        return None
    return check_path(name, value)


def check_path(name: str, value: object) -> Path:
    """Return an argument as a path; raise an error if no file can have this path."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else b""
    if isinstance(text, bytes) or not text or "\0" in text:
        raise CadisError(f"{name} should be a path, not {format_value(value)}.")
    path = expand_home(text)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except OSError as error:  # such as a name that is too long
        raise CadisError(
            f"The path {format_value(text)} cannot be used: {error.strerror}."
        ) from None
    return path
