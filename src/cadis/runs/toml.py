"""Options as TOML."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cadis.core import CadisError


def read_toml(path: Path) -> dict[str, Any]:
    """The options in a file."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise CadisError(f"The file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise CadisError(f"The file {path} is not valid TOML: {error}.") from None


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Options in a text; ``path`` is where it comes from."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CadisError(f"The file {path} is not valid TOML: {error}.") from None


def to_toml(options: Mapping[str, Any]) -> str:
    """Options as TOML: JSON's scalars and lists are TOML's too."""
    scalars = {key: value for key, value in options.items() if not isinstance(value, dict)}
    lines = [_line(key, value) for key, value in scalars.items() if value is not None]
    for name, table in options.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(_line(key, value) for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _line(key: str, value: object) -> str:
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"
