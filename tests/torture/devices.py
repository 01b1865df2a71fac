"""File systems to be filled and to lose power; nobody else sees them, and they go with us."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS


def obstacle(*programs: str) -> str | None:
    """Why file systems cannot be mounted here, None if they can."""
    if os.geteuid() != 0:
        return "only root can mount file systems"
    if missing := [name for name in ("mount", "umount", *programs) if which(name) is None]:
        return f"there is no {missing[0]}"
    return None


def private_mounts() -> None:
    """Whatever this process mounts from now on, it alone sees, and it vanishes with it."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "mounts cannot be made private")
    do("mount", "--make-rprivate", "/")


@contextmanager
def mounted(place: Path, *arguments: str) -> Iterator[Path]:
    """Something mounted at a place, for a while."""
    place.mkdir(parents=True, exist_ok=True)
    do("mount", *arguments, str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)


def do(*command: str) -> None:
    """Do a command that must work."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
