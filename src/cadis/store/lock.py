"""One process at a time works on a folder, and others can tell."""

import os
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from cadis.errors import CadisError

_PATIENCE = 0.1
"""Seconds: somebody may only have looked whether it is locked."""

_LONGEST = 100


class Lock:
    """A lock that is held until it is closed, or the process ends."""

    def __init__(self, held: FileLock) -> None:
        self._held = held

    def close(self) -> None:
        """Let others work on it."""
        self._held.release()


def lock(path: Path, what: str) -> Lock:
    """Lock a file; ``what`` names what is worked on to those who are refused."""
    path.parent.stat()  # a folder that is missing is not made
    held = FileLock(
        path,
        thread_local=False,  # whoever has it may close it
        fallback_to_soft=False,  # a file that merely exists would outlive a process that is killed
        preserve_lock_file=True,
        on_acquired=partial(_sign, path),
    )
    try:
        held.acquire(timeout=_PATIENCE)
    except Timeout:
        raise CadisError(
            f"{what} is still going on, in process {_owner(path)}; stop it first, or let it end."
        ) from None
    return Lock(held)


def is_locked(path: Path) -> bool:
    """Whether somebody works on it."""
    if not path.exists():
        return False
    looking = FileLock(path, fallback_to_soft=False, preserve_lock_file=True)
    try:
        with looking.acquire(blocking=False):
            return False
    except Timeout:
        return True
    except OSError:  # it cannot be asked
        return False


def _sign(path: Path, descriptor: int) -> None:
    """Write into a lock who has it, if it is one of ours."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    if os.read(descriptor, _LONGEST).strip(b" 0123456789"):
        raise CadisError(f"{path} is not a lock of cadis; choose another folder.")
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, f" {os.getpid()}".encode())


def _owner(path: Path) -> str:
    """Who has a lock. On Windows nobody else can read its first byte."""
    with path.open("rb") as file:
        file.seek(1)
        return file.read(_LONGEST).decode(errors="replace")
