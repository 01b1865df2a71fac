"""Text for people: a natural sort order of names, and a short ``repr`` of dataclasses."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from torch import Tensor

_MAX_ITEMS = 20
"""Number of items up to which a list is written in full."""

_MAX_LIST_LENGTH, _MAX_MAPPING_LENGTH, _MAX_LENGTH = 60, 120, 240
"""Number of characters up to which a list, a mapping and any other value is written in full."""


def natural_key(name: object) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key that puts "2" before "10".

    The name itself is the last part of the key, so that "02" and "2" have a fixed order.
    """
    parts = re.split(r"(\d+)", str(name))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], str(name)


def short_repr(value: Any) -> str:
    """Return ``Name(field=..., field=...)`` for a dataclass, without empty fields.

    Use it as ``__repr__`` of a dataclass that is declared with ``repr=False``.
    """
    values = ((entry.name, getattr(value, entry.name)) for entry in fields(value) if entry.repr)
    parts = (f"{name}={_format_value(v)}" for name, v in values if not _is_empty(v))
    return f"{type(value).__name__}({', '.join(parts)})"


def _is_empty(value: object) -> bool:
    if isinstance(value, Tensor | np.ndarray):
        return not value.size if isinstance(value, np.ndarray) else not value.numel()
    is_sized = isinstance(value, str | Mapping | Sequence)
    return value is None or (is_sized and not len(value))  # type: ignore[arg-type]


def _format_value(value: object) -> str:
    """Format small values in full; for large values, only the size or shape."""
    if isinstance(value, Tensor | np.ndarray):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"<{' x '.join(map(str, value.shape)) or 'scalar'}, {dtype}>"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        text = ", ".join(f"{key}: {_format_value(entry)}" for key, entry in value.items())
        return f"{{{text}}}" if len(text) <= _MAX_MAPPING_LENGTH else f"<{len(value)} entries>"
    if isinstance(value, list | tuple):
        is_short = len(value) <= _MAX_ITEMS
        text = f"[{', '.join(map(_format_value, value))}]" if is_short else ""
        return text if 0 < len(text) <= _MAX_LIST_LENGTH else f"<{len(value)} items>"
    text = repr(value)
    return text if len(text) <= _MAX_LENGTH else f"<{type(value).__name__}>"
