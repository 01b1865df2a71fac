"""JSON files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from cadis.core import CadisError
from cadis.data.files import shown


def read_object(path: Path) -> dict[str, Any]:
    """The object that a file must hold."""
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(
            text, object_pairs_hook=_without_repetition, parse_constant=_refuse_constant
        )
        json.dumps(content, ensure_ascii=False).encode()  # half a character is no text
    except OSError as error:
        raise CadisError(f"The file {path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        why = shown(str(error).removesuffix("."))
        raise CadisError(f"The file {path} is not valid JSON: {why}.") from None
    if not isinstance(content, dict) or not content:
        raise CadisError(f"The file {path} must hold a JSON object with something in it.")
    return content


def object_text(content: Mapping[Any, Any]) -> str:
    """An object as a file holds it, a line for each of its keys."""
    lines = (f"{json.dumps(str(key))}: {json.dumps(value)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise ValueError(f"'{name}' stands there twice")
        content[name] = value
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
