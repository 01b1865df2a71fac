"""Limits on memory: what needs too much is refused in one sentence, before memory is allocated.

The system may kill a process that uses all memory, without a word to the user.
"""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TypeVar

from cadis.errors import CadisError

_T = TypeVar("_T")

_SHARE = 0.5
"""Share of the free memory that one input may use."""

_MAX_RATIO, _LARGE = 500, 10**9
"""A file that expands to more than this many times its size, and to more than a gigabyte, is
damaged or malicious, even if there is enough memory."""

_CGROUP = Path("/sys/fs/cgroup")


def get_free_memory() -> int:
    """Return the number of bytes that this process can still allocate, without swapping.

    It is the lowest of: the free memory of the machine, of the container, and of the process
    (``ulimit -v``).
    """
    limits = [_read_available(), *_read_container_limit(), *_read_process_limit()]
    return max(0, min(limits))


def check_memory(nbytes: float, subject: str, advice: str, stored: float | None = None) -> None:
    """Raise an error if data would need more than half of the free memory.

    Args:
        nbytes: number of bytes that the data need.
        subject: subject of the error message, such as the name of a file.
        advice: end of the error message, which says what to do.
        stored: size of the file from which the data expand, if they do.
    """
    limit = _SHARE * get_free_memory()
    if nbytes > limit:
        raise CadisError(
            f"{subject} needs {format_bytes(nbytes)} of memory, more than the limit of "
            f"{format_bytes(limit)} (half of what is free); {advice}."
        )
    if stored is not None and nbytes > max(_LARGE, _MAX_RATIO * stored):
        raise CadisError(
            f"{subject} has {format_bytes(stored)}, but expands to {format_bytes(nbytes)}, more "
            f"than the limit of {_MAX_RATIO} times its size; {advice}."
        )


def check_file_size(path: Path, factor: float = 1.0) -> None:
    """Raise an error if a file is too large to read as a whole.

    Args:
        path: path of the file; a missing file is not an error here.
        factor: memory that the content needs, divided by the size of the file.
    """
    with suppress(OSError):
        size = path.stat().st_size
        if size > _LARGE / 1000:  # a small file is never a problem
            name = str(path).encode("utf-8", "backslashreplace").decode("utf-8")
            check_memory(factor * size, name, "check that it is the right file")


def take_at_most(items: Iterable[_T], limit: int, subject: str) -> list[_T]:
    """Return the items of an iterable, which may be endless; raise an error if there are too many.

    Args:
        items: the items.
        limit: maximum number of items.
        subject: beginning of the error message, such as "The argument clients".
    """
    taken = list(islice(items, limit + 1))
    if len(taken) > limit:
        raise CadisError(f"{subject} has more than {limit:,} entries; give fewer.")
    return taken


def format_bytes(nbytes: float) -> str:
    """Format a number of bytes, such as "5.5 GB"."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if nbytes >= size:
            return f"{nbytes / size:,.1f} {unit}"
    return f"{nbytes / 1e3:,.1f} kB"


def _read_available() -> int:
    """Return the free memory of the machine; Linux frees caches of files if necessary."""
    with suppress(OSError, ValueError, IndexError):
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return int(text.partition("MemAvailable:")[2].split()[0]) * 1024
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize


def _read_container_limit() -> Iterable[int]:
    """Yield the free memory of the control group, if it has a limit; caches of files are free."""
    with suppress(OSError, ValueError, IndexError):
        limit = int((_CGROUP / "memory.max").read_text(encoding="ascii"))
        used = int((_CGROUP / "memory.current").read_text(encoding="ascii"))
        statistics = (_CGROUP / "memory.stat").read_text(encoding="ascii")
        yield limit - used + int(statistics.partition("inactive_file ")[2].split()[0])


def _read_process_limit() -> Iterable[int]:
    """Yield the free address space of the process, if it has a limit."""
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource  # noqa: PLC0415 - not on Windows

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            yield limit - pages * resource.getpagesize()
