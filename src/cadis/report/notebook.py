"""A run in a notebook while it works: one line that changes, with a bar."""

import time
from collections.abc import Iterator
from html import escape
from importlib import import_module
from typing import Any

_REFRESH_SECONDS = 0.2  # between two changes, at least: each of them is a message to the browser


class NotebookBar:
    """A line of output that is changed in place, whatever the notebook is shown by."""

    def __init__(self, rounds: int) -> None:
        self._rounds, self._started, self._drawn = rounds, time.monotonic(), 0.0
        self._done, self._first, self._state = 0, 0, "starting"
        self._handle: Any = None
        self.draw()

    def advance(self, done: int, state: str) -> None:
        """So many rounds are done."""
        if not self._done:
            self._first = done - 1  # what a resumed run had already says nothing about the time
        self._done, self._state = done, state
        self.draw()

    def draw(self, what: str = "") -> None:
        """Show the state, and what is being done; not more often than anybody can read."""
        ended = self._done == self._rounds
        if not ended and time.monotonic() < self._drawn + _REFRESH_SECONDS:
            return
        self._drawn, told = time.monotonic(), ", ".join(filter(None, self._told(what)))
        bar = f'<progress max="{self._rounds}" value="{self._done}"></progress>'
        content = {"text/plain": told, "text/html": f"{bar} {escape(told)}"}
        if self._handle is None:
            display = import_module("IPython.display").display  # in a notebook it is there
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def _told(self, what: str) -> Iterator[str]:
        yield f"round {self._done}/{self._rounds}"
        yield self._state
        yield what
        done, seconds = self._done - self._first, time.monotonic() - self._started
        if self._done == self._rounds:
            yield f"{seconds:.1f} s"
        elif done:
            yield f"about {seconds / done * (self._rounds - self._done):.0f} s left"
