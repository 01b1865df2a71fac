"""Settings of glibc's ``malloc`` that let a worker reuse freed memory.

Every training step allocates the same tensors as the step before. By default, glibc returns large
blocks to the system when they are freed, and the system clears and maps new pages in each step.
Worker processes call :func:`keep_freed_memory` when they start.
"""

import ctypes
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""``M_TRIM_THRESHOLD`` and ``M_MMAP_THRESHOLD`` in glibc's ``malloc.h``."""

_ADVICE_HUGE_PAGES = 14
"""``MADV_HUGEPAGE`` of Linux."""

_MAX_BLOCK = 32 << 20
"""Size in bytes of the largest block that glibc can keep; it always returns larger ones."""

_MAX_FREE = 1 << 30
"""Number of free bytes at the end of the heap that are kept."""

_BLOCKS = 8
"""Number of largest blocks for which huge pages are requested; they use memory only when used."""

_PAGE = 4096


def keep_freed_memory() -> None:
    """Make this process keep the memory that it frees, in huge pages, on Linux with glibc.

    This only changes speed. Call it in worker processes only, since memory is not returned to the
    system before the process ends.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, AttributeError):  # another C library may not have these settings
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _MAX_BLOCK)
        library.mallopt(_TRIM_THRESHOLD, _MAX_FREE)
        _request_huge_pages(library)


def _request_huge_pages(library: ctypes.CDLL) -> None:
    """Advise huge pages for the end of the heap, by allocating and freeing blocks there."""
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    size = _MAX_BLOCK - _PAGE
    blocks = sorted(block for _ in range(_BLOCKS) if (block := library.malloc(size)))
    if blocks and blocks[-1] - blocks[0] < _BLOCKS * _MAX_BLOCK:  # adjacent
        start = -(-blocks[0] // _PAGE) * _PAGE
        library.madvise(start, blocks[-1] + size - _PAGE - start, _ADVICE_HUGE_PAGES)
    for block in blocks:
        library.free(block)
