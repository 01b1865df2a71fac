"""What is called while something takes a while: a terminal shows it, or nobody does."""

from collections.abc import Callable
from dataclasses import dataclass


def _ignore(*_: object) -> None:
    """The default of every callback: it does nothing."""


@dataclass(frozen=True)
class Callbacks:
    """What is called while data are loaded, or clients are trained.

    Attributes:
        progress: called with what is being done, how much is done and how much there is (0 if
            unknown), in any unit.
        say: called with a sentence that the user should read.
    """

    progress: Callable[[str, int, int], None] = _ignore
    say: Callable[[str], None] = _ignore


NO_CALLBACKS = Callbacks()
