"""What is done to a process from within, before it does what it was asked to do."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from matplotlib.figure import Figure


def sketch() -> None:
    """Have matplotlib write files of a few bytes in place of pictures."""

    def save(_figure: Figure, target: Any, **_options: Any) -> None:
        if hasattr(target, "write"):
            target.write(b"a picture")
        else:
            Path(target).write_bytes(b"a picture")

    Figure.savefig = save  # type: ignore[assignment,method-assign]
    Figure.draw_without_rendering = lambda _: None  # type: ignore[assignment,method-assign]


class Screen:
    """The screen of a victim, on which something happens once a text is shown."""

    def __init__(self, screen: IO[str], text: str, happens: Callable[[], None]) -> None:
        self._screen, self._text, self._happens = screen, text, happens

    def write(self, text: str) -> int:
        """Show a text."""
        written = self._screen.write(text)
        self._screen.flush()
        if self._text in text:
            self._happens()
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._screen, name)


def when_shown(text: str, happens: Callable[[], None]) -> Callable[[], None]:
    """A disturbance: something happens as soon as a text is on the screen."""

    def disturb() -> None:
        sys.stdout = Screen(sys.stdout, text, happens)

    return disturb


def kill_myself() -> None:
    """End this very process at once, as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)
