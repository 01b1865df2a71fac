"""Memory that a worker keeps: what one step frees, the next one takes, page for page.

A step allocates the same tensors as the step before. The C library gives large ones back to the
system when they are freed, and the system then clears and maps their pages anew for every step.
"""

import ctypes
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of settings in glibc's ``malloc.h``."""

_ADVICE_HUGE_PAGES = 14
"""``MADV_HUGEPAGE`` of Linux."""

_LARGEST = 32 << 20
"""The largest block, in bytes, that glibc can be told to keep; larger ones are always returned."""

_KEPT = 1 << 30
"""So many free bytes at the end of the heap are kept."""

_BLOCKS = 8
"""Blocks of the largest size for which huge pages are asked; they are taken when they are used."""

_PAGE = 4096


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, in large pages, where the system knows how.

    It changes speed alone. It is for worker processes: they live as long as there is work, and do
    nothing else.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, AttributeError):  # another C library has other settings, or none
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGEST)
        library.mallopt(_TRIM_THRESHOLD, _KEPT)
        _ask_for_huge_pages(library)


def _ask_for_huge_pages(library: ctypes.CDLL) -> None:
    """Advise huge pages for the end of the heap, which is allocated, and freed again, for that."""
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    size = _LARGEST - _PAGE
    blocks = sorted(block for _ in range(_BLOCKS) if (block := library.malloc(size)))
    if blocks and blocks[-1] - blocks[0] < _BLOCKS * _LARGEST:  # one after the other
        start = -(-blocks[0] // _PAGE) * _PAGE
        library.madvise(start, blocks[-1] + size - _PAGE - start, _ADVICE_HUGE_PAGES)
    for block in blocks:
        library.free(block)
