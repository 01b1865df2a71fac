"""Files as they may be on a user's disk, which may be full, and the JSON and TOML in them."""

import errno
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import tomli_w

from cadis.errors import CadisError, RunError


def shown(something: object) -> str:
    """A path or a reason for a message: names need not be text, and then could not be printed."""
    return str(something).encode("utf-8", "backslashreplace").decode("utf-8")


def is_folder(path: Path) -> bool:
    """Whether a folder can be reached there; a name that is too long is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Whether an ordinary file can be reached there: reading a pipe might never end."""
    try:
        return path.is_file()
    except OSError:
        return False


def at_home(path: Path | str) -> Path:
    """With ``~`` replaced by the home folder, if there is that user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def is_full(error: Exception) -> bool:
    """Whether it says that there is no room left on a disk."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def unwritable(path: Path, error: OSError) -> CadisError | RunError:
    """What to raise if a file or folder cannot be written."""
    if is_full(error):
        return RunError(f"{shown(path)} cannot be written: the disk is full; make room on it.")
    return CadisError(f"{shown(path)} cannot be written: {error.strerror}.")


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


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise ValueError(f"'{name}' stands there twice")
        content[name] = value
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _given(value) if isinstance(value, Mapping) else value
        for name, value in options.items()
        if value is not None
    }
