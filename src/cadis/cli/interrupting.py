"""Ctrl-C, from the first moment on: one sentence and exit code 130, never a traceback.

Where nothing has begun yet, the process ends on the spot: an exception would go through imports of
compiled modules, which turn it into something else. Where work is under way, it is a
``KeyboardInterrupt``, so that what was begun is let go of.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cadis.cli.notice import erase

STOPPED = 130
"""The exit code of a command that was stopped by Ctrl-C."""

_LATER = 0.01
"""Seconds."""


def end_at_once() -> None:
    """From now on, Ctrl-C ends this process on the spot; if it is ignored, it remains so."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # as it is for what a script has started
        mine = os.getpid()
        signal.signal(signal.SIGINT, lambda *_: _end(mine))


@contextmanager
def interruptible() -> Iterator[None]:
    """Within, Ctrl-C is an exception; afterwards it is what it was before."""
    before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    if before == signal.SIG_IGN:
        yield
        return
    try:
        sys.unraisablehook = lambda lost: _again(lost, hook)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = hook


def _again(lost: "sys.UnraisableHookArgs", hook: Callable[["sys.UnraisableHookArgs"], Any]) -> None:
    """Where Python loses an exception, as in the end of an object, Ctrl-C comes again later."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        threading.Timer(_LATER, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        hook(lost)


def _end(told_by: int) -> None:
    """End; a process that was forked says nothing."""
    if os.getpid() == told_by:
        erase()
        os.write(2, b"cadis: Stopped.\n")
    os._exit(STOPPED)
