"""Files and folders as they may be on a user's disk, which may be full."""

import errno
from pathlib import Path

from cadis.core import CadisError, RunError


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
