"""Who hears how loading goes: a terminal, or nobody."""

from collections.abc import Callable
from dataclasses import dataclass


def _ignore(*_: object) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Listener:
    """Hears of work that takes a while.

    Attributes:
        progress: called with what is being done, how much is done and how much there is (0 if
            unknown), in any unit.
        say: called with a sentence that the user should read.
    """

    progress: Callable[[str, int, int], None] = _ignore
    say: Callable[[str], None] = _ignore


SILENT = Listener()
