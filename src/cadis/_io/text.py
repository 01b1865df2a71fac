"""Values as people read them: names in natural order, and large values on one line."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from torch import Tensor

_LONGEST = 60
"""Letters of what is shown as it is."""


def natural(name: object) -> tuple[list[tuple[int, str]], str]:
    """Sorts 2 before 10; names that differ only in how a number is written, always alike."""
    parts = re.split(r"(\d+)", str(name))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], str(name)


def short_repr(value: Any) -> str:
    """``Name(field=..., field=...)`` of a dataclass, without what is empty.

    It is used as ``__repr__`` of a dataclass that has ``repr=False``.
    """
    held = ((each.name, getattr(value, each.name)) for each in fields(value) if each.repr)
    told = (f"{name}={_shown(content)}" for name, content in held if not _empty(content))
    return f"{type(value).__name__}({', '.join(told)})"


def _empty(content: object) -> bool:
    if isinstance(content, Tensor | np.ndarray):
        return not content.size if isinstance(content, np.ndarray) else not content.numel()
    sized = isinstance(content, str | Mapping | Sequence)
    return content is None or (sized and not len(content))  # type: ignore[arg-type]


def _shown(content: object) -> str:
    """A number or name as it is, of anything large its size."""
    if isinstance(content, Tensor | np.ndarray):
        kind = str(content.dtype).removeprefix("torch.")
        return f"<{' x '.join(map(str, content.shape)) or 'one'}, {kind}>"
    if isinstance(content, float):
        return f"{content:.4g}"
    if isinstance(content, Mapping):
        told = ", ".join(f"{key}: {_shown(value)}" for key, value in content.items())
        return f"{{{told}}}" if len(told) <= 2 * _LONGEST else f"<{len(content)} entries>"
    if isinstance(content, list | tuple):
        told = f"[{', '.join(map(_shown, content))}]" if len(content) <= _LONGEST // 3 else ""
        return told if 0 < len(told) <= _LONGEST else f"<{len(content)} items>"
    told = repr(content)
    return told if len(told) <= 4 * _LONGEST else f"<{type(content).__name__}>"
