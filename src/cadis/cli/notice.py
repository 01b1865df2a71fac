"""The first words: PyTorch takes long to import, and a user should not wait in silence."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_WORDS = "Loading PyTorch ..."


@contextmanager
def notice() -> Iterator[None]:
    """Say what takes so long, in a terminal and if it is still to come; gone at the end."""
    if "torch" in sys.modules or not _terminal():
        yield
        return
    _write(_WORDS)
    try:
        yield
    finally:
        erase()


def erase() -> None:
    """Make the line empty that the words may be on."""
    if _terminal():
        _write(f"\r{' ' * (len(_WORDS) + 2)}\r")  # and "^C", which the terminal adds


def _terminal() -> bool:
    """Whether somebody looks at what is said here."""
    return sys.stderr is not None and sys.stderr.isatty()


def _write(text: str) -> None:
    """At once; a terminal that is gone is no matter."""
    with suppress(OSError):
        os.write(2, text.encode())
