"""Files that survive: whole or not at all, on the disk and not only in its cache, and checked."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cadis.core import CadisError


class DamagedError(CadisError):
    """A file is not what was written: one sentence that names it."""


@dataclass(frozen=True)
class StoredFile:
    """A file, and what it must hold.

    Attributes:
        name: its name within the folder that it is kept in.
        sha256: the digest of its content; "" if it was written before digests were kept.
    """

    name: str
    sha256: str


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
    if stored.sha256 and digest_of(content) != stored.sha256:
        raise damaged(path)
    return content


def damaged(path: Path) -> DamagedError:
    """The sentence about a file whose digest is another."""
    return DamagedError(f"{path} is damaged: it is not what was written.")
