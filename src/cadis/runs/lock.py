"""One process at a time works on a folder, and others can tell."""

import os
import sys
import time
from pathlib import Path
from typing import IO

from cadis.core import CadisError

_HELD: set[Path] = set()
"""What this process has locked: the system keeps apart only processes, not parts of one."""


class Lock:
    """A lock that is held until it is closed, or the process ends."""

    def __init__(self, path: Path, file: IO[str]) -> None:
        self._path, self._file = path, file
        _HELD.add(path)

    def close(self) -> None:
        """Let others work on it."""
        _HELD.discard(self._path)
        self._file.close()


def lock(path: Path, what: str) -> Lock:
    """Keep others from working on the same thing.

    Args:
        path: a file that is locked.
        what: what is worked on, for those who are refused.
    """
    if path.resolve() in _HELD:  # opening and closing its file would let go of the lock
        raise _refusal(what, str(os.getpid()))
    file = path.open("a+", encoding="ascii", errors="replace")
    try:
        file.seek(0)
        owner = file.read(100)
        if owner.strip("0123456789"):
            raise CadisError(f"{path} is not a lock of cadis; choose another folder.")
        if not (_try_lock(file) or _try_again(file)):
            raise _refusal(what, owner)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
    except BaseException:
        file.close()
        raise
    return Lock(path.resolve(), file)


def is_locked(path: Path) -> bool:
    """Whether somebody works on it."""
    if path.resolve() in _HELD:
        return True
    try:
        with path.open("r+", encoding="ascii") as file:  # closing it lets go of the lock
            return not _try_lock(file)
    except OSError:  # there is none, or it cannot be asked
        return False


def _refusal(what: str, owner: str) -> CadisError:
    return CadisError(
        f"{what} is still going on, in process {owner}; stop it first, or let it end."
    )


def _try_again(file: IO[str]) -> bool:
    """Once more after a moment: somebody may only have looked whether it is locked."""
    time.sleep(0.05)
    return _try_lock(file)


def _try_lock(file: IO[str]) -> bool:
    """Lock a file, if nobody else has; where files cannot be locked, nobody has."""
    if sys.platform == "win32":
        return True
    import fcntl  # noqa: PLC0415

    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
