"""Atomic, durable and verified reading and writing of files.

All other modules of the store use it, so that a crash or a power loss never leaves an incomplete
file.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from pydantic import TypeAdapter, ValidationError

from cadis._io import check_file_size, has_name, make_private_folder, read_regular
from cadis.errors import CadisError
from cadis.types import StoredFile

_P = ParamSpec("_P")
_T = TypeVar("_T")

_READ_ATTEMPTS = 4
"""Number of attempts to read a file that another process may be writing."""

_get_adapter: Callable[[Any], TypeAdapter[Any]] = lru_cache(TypeAdapter)
"""Returns the pydantic adapter of a type; cached, since it takes longer to create than to use."""


class DamagedError(CadisError):
    """A file is missing, or its content has changed since cadis wrote it."""


def compute_digest(content: bytes) -> str:
    """Return the SHA-256 digest in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def sync_folder(folder: Path) -> None:
    """Flush the names of the files in a folder to the disk; on Windows, do nothing."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, root: Path) -> None:
    """Create a folder and its parents, and flush their names to the disk.

    Folders from ``root`` on must not be links. Only their owner can read the new folders.
    """
    for path in make_private_folder(folder, root):
        sync_folder(path.parent)


def read_file(path: Path) -> bytes:
    """Return the content of a file; raise :class:`DamagedError` if it cannot be read."""
    check_file_size(path)
    try:
        return read_regular(path)
    except FileNotFoundError:
        state = "is a link to a missing file" if has_name(path) else "is missing"
        raise DamagedError(f"{path} {state}.") from None
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}.") from None


def read_verified(folder: Path, stored: StoredFile) -> bytes:
    """Return the content of a file; raise :class:`DamagedError` if its digest has changed."""
    path = folder / stored.name
    content = read_file(path)
    if compute_digest(content) != stored.sha256:
        raise make_damage_error(path)
    return content


def retry_if_damaged(read: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a function so that it reads again if it finds a damaged file.

    Another process may be writing the file at that moment.
    """

    @wraps(read)
    def read_repeatedly(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        for _ in range(_READ_ATTEMPTS - 1):
            try:
                return read(*args, **kwargs)
            except DamagedError:
                time.sleep(0.05)
        return read(*args, **kwargs)

    return read_repeatedly


@contextmanager
def catch_write_errors(folder: Path) -> Iterator[None]:
    """Convert an OSError to a CadisError that names the folder."""
    try:
        yield
    except OSError as error:
        raise CadisError(f"The folder {folder} cannot be written: {error.strerror}.") from None


def make_damage_error(path: Path) -> DamagedError:
    """Return the error for a file whose digest has changed."""
    return DamagedError(f"{path} is damaged: its content has changed since it was written.")


def parse_tensor_metadata(content: bytes) -> dict[str, str]:
    """Return the metadata of a safetensors file; raise ValueError if its header is damaged."""
    size = int.from_bytes(content[:8], "little")
    metadata: dict[str, str] = json.loads(content[8 : 8 + size]).get("__metadata__", {})
    return metadata


def parse_json(value_type: type[_T], text: str | bytes, source: object) -> _T:
    """Parse JSON as a value of a type.

    Args:
        value_type: a dataclass or another type that pydantic supports.
        text: the JSON text.
        source: path or name of the text, for the error.
    """
    try:
        value: _T = _get_adapter(value_type).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        problem = first["msg"].removeprefix("Input ").removeprefix("Value error, ")
        problem = f"{key} {problem[:1].lower()}{problem[1:]}".strip()
        raise DamagedError(f"{source} is damaged: {problem}.") from None
    return value


def to_json(value: object) -> str:
    """Convert a dataclass to JSON; equal values give the same text."""
    plain = _get_adapter(type(value)).dump_python(value, mode="json")
    return json.dumps(plain, sort_keys=True, allow_nan=False)
