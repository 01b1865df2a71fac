"""Reading and writing users' files: paths, full disks, JSON and TOML."""

import errno
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import tomli_w

from cadis._io.memory import check_file_size
from cadis._io.safe_files import open_regular
from cadis.errors import CadisError, RunError

_JSON_FACTOR = 20
"""Memory of parsed JSON or TOML, divided by the size of its text: ``[],`` is an empty list."""


def to_printable(value: object) -> str:
    """Return a path or an error as text that can be printed.

    File names may contain bytes that are not valid UTF-8; these are escaped.
    """
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def is_folder(path: Path) -> bool:
    """Return whether the path is an accessible folder; False if the name is too long."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Return whether the path is an accessible regular file; reading a pipe might never end."""
    try:
        return path.is_file()
    except OSError:
        return False


def expand_home(path: Path | str) -> Path:
    """Replace ``~`` with the home folder; return the path unchanged if the user does not exist."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def is_disk_full(error: Exception) -> bool:
    """Return whether the error means that the disk is full or a quota is exceeded."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def make_write_error(path: Path, error: OSError) -> CadisError | RunError:
    """Return the exception to raise if a file or folder cannot be written."""
    name = to_printable(path)
    if is_disk_full(error):
        return RunError(f"{name} cannot be written: the disk is full; free some space.")
    return CadisError(f"{name} cannot be written: {error.strerror}.")


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that must contain an object with at least one key."""
    check_file_size(path, _JSON_FACTOR)
    try:
        text = _read_text(path)
        content = json.loads(
            text, object_pairs_hook=_reject_duplicates, parse_constant=_reject_constant
        )
        json.dumps(content, ensure_ascii=False).encode()  # fails for a lone surrogate
    except OSError as error:
        raise CadisError(f"The file {path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        reason = to_printable(str(error).removesuffix("."))
        raise CadisError(f"The file {path} is not valid JSON: {reason}.") from None
    if not isinstance(content, dict) or not content:
        raise CadisError(f"The file {path} must contain a JSON object that is not empty.")
    return content


def format_json(content: Mapping[Any, Any]) -> str:
    """Format a mapping as a JSON object with one line per key."""
    lines = (f"{json.dumps(str(key))}: {json.dumps(value)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read_toml(path: Path) -> dict[str, Any]:
    """Read the options in a TOML file."""
    check_file_size(path, _JSON_FACTOR)
    try:
        return parse_toml(_read_text(path), path)
    except OSError as error:
        raise CadisError(f"The file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise CadisError(f"The file {path} is not valid TOML: {error}.") from None


def _read_text(path: Path) -> str:
    with open_regular(path, "r", encoding="utf-8") as file:
        return str(file.read())


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Parse TOML text; ``path`` is the file that it comes from, for error messages."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not TOML, or nested too deep
        raise CadisError(f"The file {path} is not valid TOML: {error}.") from None


def to_toml(options: Mapping[str, Any]) -> str:
    """Format options as TOML; options that are None are left out."""
    return tomli_w.dumps(_drop_none(options))


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise ValueError(f"the key '{name}' occurs twice")
        content[name] = value
    return content


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _drop_none(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _drop_none(value) if isinstance(value, Mapping) else value
        for name, value in options.items()
        if value is not None
    }
