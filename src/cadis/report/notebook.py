"""Show the progress of a run in a notebook: one line of output with a bar."""

import time
from collections.abc import Iterator
from html import escape
from importlib import import_module
from typing import Any

_REFRESH_SECONDS = 0.2  # time between updates: each is a message to the browser


class NotebookBar:
    """A line of output that is updated in place, in any notebook front end."""

    def __init__(self, rounds: int) -> None:
        self._rounds, self._started, self._drawn = rounds, time.monotonic(), 0.0
        self._done, self._first, self._state = 0, 0, "starting"
        self._handle: Any = None
        self.draw()

    def advance(self, done: int, state: str) -> None:
        """Show the number of finished rounds and a description of the last one."""
        if not self._done:
            self._first = done - 1  # rounds before a resumed run do not count for the time left
        self._done, self._state = done, state
        self.draw()

    def draw(self, activity: str = "") -> None:
        """Show the state and the current activity, at most once per refresh interval."""
        is_finished = self._done == self._rounds
        if not is_finished and time.monotonic() < self._drawn + _REFRESH_SECONDS:
            return
        self._drawn, text = time.monotonic(), ", ".join(filter(None, self._describe(activity)))
        bar = f'<progress max="{self._rounds}" value="{self._done}"></progress>'
        content = {"text/plain": text, "text/html": f"{bar} {escape(text)}"}
        if self._handle is None:
            display = import_module("IPython.display").display  # installed in every notebook
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def _describe(self, activity: str) -> Iterator[str]:
        yield f"round {self._done}/{self._rounds}"
        yield self._state
        yield activity
        done, seconds = self._done - self._first, time.monotonic() - self._started
        if self._done == self._rounds:
            yield f"{seconds:.1f} s"
        elif done:
            yield f"about {seconds / done * (self._rounds - self._done):.0f} s left"
