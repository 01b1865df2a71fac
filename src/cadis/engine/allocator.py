"""Settings of glibc's ``malloc`` that let a worker reuse freed memory.

Every training step allocates tensors of the same sizes as the step before. By default, glibc
returns large freed blocks to the operating system, which must then provide new zeroed pages in each
step. Worker processes call :func:`keep_freed_memory` when they start.
"""

import ctypes
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""``M_TRIM_THRESHOLD`` and ``M_MMAP_THRESHOLD`` in glibc's ``malloc.h``."""

_ADVICE_HUGE_PAGES = 14
"""``MADV_HUGEPAGE`` of Linux."""

_MAX_BLOCK = 32 << 20
"""Size in bytes of the largest freed block that glibc can keep; it always returns larger blocks."""

_MAX_FREE = 1 << 30
"""Maximum number of free bytes that are kept at the end of the heap."""

_BLOCKS = 8
"""Number of blocks of the largest size for which huge pages are requested.

They take no memory before they are used.
"""

_PAGE = 4096
"""Size of a memory page in bytes."""


def keep_freed_memory() -> None:
    """Make this process keep the memory that it frees, in huge pages, on Linux with glibc.

    This changes only the speed. Call it only in worker processes, since the memory is not returned
    to the operating system before the process ends.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, AttributeError):  # another C library may not have these settings
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _MAX_BLOCK)
        library.mallopt(_TRIM_THRESHOLD, _MAX_FREE)
        _request_huge_pages(library)


def _request_huge_pages(library: ctypes.CDLL) -> None:
    """Allocate blocks at the end of the heap, request huge pages for them, and free them."""
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
