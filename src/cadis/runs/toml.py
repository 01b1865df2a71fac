"""Options as TOML."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

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
    except (ValueError, RecursionError) as error:  # not TOML, or nested too deep
        raise CadisError(f"The file {path} is not valid TOML: {error}.") from None


def to_toml(options: Mapping[str, Any]) -> str:
    """Options as TOML; those that are None are left out."""
    return tomli_w.dumps(_given(options))


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _given(value) if isinstance(value, Mapping) else value
        for name, value in options.items()
        if value is not None
    }
