"""File locks, so that only one process at a time writes to a run or a study.

The store locks its folders; the report page checks whether a run is still locked.
"""

import os
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from cadis._io import check_output, check_single_name, has_name, open_regular
from cadis.errors import CadisError

_TIMEOUT = 0.1
"""Seconds to wait for a lock, since :func:`is_locked` in another process holds it briefly."""

_MAX_BYTES = 100
"""Maximum number of bytes to read from a lock file, which contains only a process id."""


class Lock:
    """A lock that is held until it is closed or the process ends."""

    def __init__(self, file_lock: FileLock) -> None:
        self._file_lock = file_lock

    def close(self) -> None:
        """Release the lock."""
        self._file_lock.release()


def lock(path: Path, subject: str) -> Lock:
    """Lock a file.

    Args:
        path: the lock file; its folder must exist.
        subject: beginning of the error message, such as "The run in out".
    """
    path.parent.stat()  # FileLock would create a missing folder
    _check_lock_file(path)
    file_lock = FileLock(
        path,
        thread_local=False,  # another thread may release the lock
        fallback_to_soft=False,  # a soft lock would outlive a killed process
        preserve_lock_file=True,
        on_acquired=partial(_write_owner, path),
    )
    try:
        file_lock.acquire(timeout=_TIMEOUT)
    except Timeout:
        raise CadisError(
            f"{subject} is in use by process {_read_owner(path)}; stop that process, or wait until "
            "it ends."
        ) from None
    return Lock(file_lock)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock."""
    try:
        _check_lock_file(path)
    except (OSError, CadisError):  # no process of cadis holds a link or a pipe
        return False
    if not has_name(path):
        return False
    file_lock = FileLock(path, fallback_to_soft=False, preserve_lock_file=True)
    try:
        with file_lock.acquire(blocking=False):
            return False
    except Timeout:
        return True
    except OSError:  # such as a folder without permission
        return False


def _check_lock_file(path: Path) -> None:
    """Raise an error if locking the file would change another file, or wait for a pipe."""
    check_output(path)
    if has_name(path):
        check_single_name(path)


def _write_owner(path: Path, descriptor: int) -> None:
    """Write the id of this process to a lock file; raise an error if the file has other content."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    if os.read(descriptor, _MAX_BYTES).strip(b" 0123456789"):
        raise CadisError(f"{path} is not a lock file of cadis; choose another folder.")
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, f" {os.getpid()}".encode())


def _read_owner(path: Path) -> str:
    """Return the id of the process that holds a lock.

    Windows locks the first byte, which other processes cannot read; the id starts after it.
    """
    with open_regular(path) as file:
        file.seek(1)
        return str(file.read(_MAX_BYTES).decode(errors="replace"))
