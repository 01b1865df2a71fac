"""JSON files of a user."""

import json
from pathlib import Path
from typing import Any

from cadis.core import CadisError


def read_object(path: Path) -> dict[str, Any]:
    """The object that a file must hold."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CadisError(f"The file {path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise CadisError(f"The file {path} is not valid JSON: {error}.") from None
    if not isinstance(content, dict) or not content:
        raise CadisError(f"The file {path} must hold a JSON object with something in it.")
    return content
