"""Files that survive: whole or not at all, on the disk and not only in its cache, and checked."""

import hashlib
import json
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from cadis.errors import CadisError
from cadis.types import StoredFile

_T = TypeVar("_T")

_adapters: Callable[[Any], TypeAdapter[Any]] = lru_cache(TypeAdapter)
"""What reads a type; making it takes longer than using it."""


class DamagedError(CadisError):
    """A file is not what was written: one sentence that names it."""


def digest_of(content: bytes) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def draft_of(path: Path) -> Path:
    """Where a file is written before it is put in place."""
    return path.with_name(f".{path.name}.draft")


def write_draft(path: Path, content: bytes) -> Path:
    """Bring the content of ``path`` to the disk under its draft's name."""
    draft = draft_of(path)
    with draft.open("wb") as file:
        file.write(content)
        sync_file(file)
    return draft


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in place, whole or not at all. It may still be the old one after a power loss."""
    write_draft(path, content).replace(path)


def replace_text(path: Path, text: str) -> None:
    """Put a text file in place, whole or not at all."""
    replace_file(path, text.encode())


def sync_file(file: IO[bytes]) -> None:
    """Bring a file's content to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk, where the system can do so for folders."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those that it is in, and bring their names to the disk."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)


def read_file(path: Path) -> bytes:
    """The content of a file that must be there."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing.") from None
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}.") from None


def read_stored(folder: Path, stored: StoredFile) -> bytes:
    """The content of a file, which must be what was written."""
    path = folder / stored.name
    content = read_file(path)
    if digest_of(content) != stored.sha256:
        raise damaged(path)
    return content


def damaged(path: Path) -> DamagedError:
    """The sentence about a file whose digest is another."""
    return DamagedError(f"{path} is damaged: it is not what was written.")


def tensor_metadata(content: bytes) -> dict[str, str]:
    """Return the metadata in the header of a safetensors file; ValueError if it is damaged."""
    size = int.from_bytes(content[:8], "little")
    metadata: dict[str, str] = json.loads(content[8 : 8 + size]).get("__metadata__", {})
    return metadata


def read_as(kind: type[_T], text: str | bytes, where: object) -> _T:
    """JSON as a value of this type; ``where`` names what holds it, if something is wrong."""
    try:
        value: _T = _adapters(kind).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        problem = first["msg"].removeprefix("Input ")
        problem = f"{place} {problem[:1].lower()}{problem[1:]}".strip()
        raise DamagedError(f"{where} is damaged: {problem}.") from None
    return value


def to_json(value: object) -> str:
    """A dataclass as JSON, the same text for equal values."""
    plain = _adapters(type(value)).dump_python(value, mode="json")
    return json.dumps(plain, sort_keys=True, allow_nan=False)
