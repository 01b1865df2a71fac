"""JSON files of a user."""

import json
from pathlib import Path
from typing import Any

from cadis.core import CadisError


def read_object(path: Path) -> dict[str, Any]:
    """The object that a file must hold."""
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text, object_pairs_hook=_without_repetition)
    except OSError as error:
        raise CadisError(f"The file {path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise CadisError(f"The file {path} is not valid JSON: {error}.") from None
    if not isinstance(content, dict) or not content:
        raise CadisError(f"The file {path} must hold a JSON object with something in it.")
    return content


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"'{repeated}' stands there twice")
    return content
