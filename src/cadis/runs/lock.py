"""One process at a time works on a folder, and others can tell."""

import os
import sys
import time
from pathlib import Path
from typing import IO

from cadis.core import CadisError


def lock(path: Path, what: str) -> IO[str]:
    """Keep other processes from working on the same thing, until this one ends.

    Args:
        path: a file that is locked.
        what: what is worked on, for those who are refused.

    Returns:
        What must stay open.
    """
    file = path.open("a+", encoding="utf-8")
    if not (_try_lock(file) or _try_again(file)):
        file.seek(0)
        owner = file.read()
        file.close()
        raise CadisError(
            f"{what} is still going on, in process {owner}; stop it first, or let it end."
        )
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def is_locked(path: Path) -> bool:
    """Whether another process works on it."""
    if not path.exists():
        return False
    with path.open("a+", encoding="utf-8") as file:  # closing it lets go of the lock
        return not _try_lock(file)


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
    except OSError:
        return False
    return True
