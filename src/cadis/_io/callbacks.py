"""Callbacks that report the progress of long operations."""

from collections.abc import Callable
from dataclasses import dataclass


def _ignore(*_: object) -> None:
    """Do nothing; the default of every callback."""


@dataclass(frozen=True)
class Callbacks:
    """Functions that are called while data are loaded and while clients are trained.

    Attributes:
        progress: called with the name of the operation, the amount done and the total amount
            (0 if unknown), both in the same unit.
        say: called with a sentence that the user should read.
    """

    progress: Callable[[str, int, int], None] = _ignore
    say: Callable[[str], None] = _ignore


NO_CALLBACKS = Callbacks()
