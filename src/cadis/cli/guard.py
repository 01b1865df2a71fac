"""The frame of every command: whatever goes wrong is one sentence and an exit code.

Ctrl-C, too, from the first moment on: exit code 130, never a traceback. Where nothing has begun
yet, the process ends on the spot: an exception would go through imports of compiled modules, which
turn it into something else. Where work is under way, it is a ``KeyboardInterrupt``, so that what
was begun is let go of.
"""

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cadis.errors import CadisError, RunError

STOPPED = 130
"""The exit code of a command that was stopped by Ctrl-C."""
_LATER = 0.01
"""Seconds."""
_LOADING = "Loading PyTorch ..."
_PACKAGE = Path(__file__).parents[1]


def guarded(work: Callable[..., int], /, *arguments: Any, **options: Any) -> int:
    """Do the work and return its exit code: 2 for wrong input, 1 for what went wrong later.

    What is nobody's fault but ours keeps its traceback, so that it is reported.
    """
    try:
        with interruptible():
            return work(*arguments, **options)
    except KeyboardInterrupt:
        return say("Stopped.", STOPPED)
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        return say(sentence, 2 if isinstance(error, CadisError) else 1)


def say(sentence: str, code: int) -> int:
    """Tell the user, and return the exit code."""
    print(f"cadis: {sentence}", file=sys.stderr)
    return code


def _where(error: Exception) -> str:
    """The place in a user's own code where an error came from, if it came from there."""
    frames = [
        frame
        for note in getattr(error, "__notes__", [])
        for frame in re.findall(r'File "([^"]+)", line (\d+)', note)
    ]
    own = [f for f in frames if not Path(f[0]).is_relative_to(_PACKAGE) and Path(f[0]).is_file()]
    own = [frame for frame in own if "site-packages" not in frame[0]]
    return f" ({own[-1][0]}, line {own[-1][1]})" if own else ""


def _sentence(error: Exception) -> str | None:
    """What to tell of an error; None of one that the user can do nothing about."""
    if isinstance(error, CadisError | RunError):
        return f"{error}{_where(error)}"
    if isinstance(error, BrokenPipeError):  # "cadis presets | head -1": click ends it silently
        return None
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}."
    if isinstance(error, UnicodeError):
        return f"There is text that is not UTF-8: {error}."
    lacking = isinstance(error, RuntimeError) and "allocate memory" in str(error)  # torch's words
    if isinstance(error, MemoryError) or lacking:
        return "Out of memory; ask for fewer workers, fewer clients or a smaller model."
    return None


def end_at_once() -> None:
    """From now on, Ctrl-C ends this process on the spot; if it is ignored, it remains so."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # as it is for what a script has started
        mine = os.getpid()
        signal.signal(signal.SIGINT, lambda *_: _end(mine))


def _end(told_by: int) -> None:
    """End; a process that was forked says nothing."""
    if os.getpid() == told_by:
        _erase()
        os.write(2, b"cadis: Stopped.\n")
    os._exit(STOPPED)


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


@contextmanager
def notice() -> Iterator[None]:
    """Say on a terminal that PyTorch, which takes long, is imported; the words are then erased."""
    if "torch" in sys.modules or not _is_terminal():
        yield
        return
    _write(_LOADING)
    try:
        yield
    finally:
        _erase()


def _erase() -> None:
    if _is_terminal():
        _write(f"\r{' ' * (len(_LOADING) + 2)}\r")  # and "^C", which the terminal adds


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _write(text: str) -> None:
    """Write at once; a terminal that is gone is no matter."""
    with suppress(OSError):
        os.write(2, text.encode())
