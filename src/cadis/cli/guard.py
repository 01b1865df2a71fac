"""Errors and Ctrl-C: every command ends with one sentence and an exit code, without a traceback.

The exit code after Ctrl-C is 130. During the imports at the start, Ctrl-C ends the process
immediately, because compiled modules would turn an exception into other errors. Later, it raises
``KeyboardInterrupt``, so that files and processes are closed.
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
"""Exit code of a command that was stopped with Ctrl-C."""
_DELAY = 0.01
"""Seconds until a Ctrl-C that Python ignored is sent again."""
_LOADING = "Loading PyTorch ..."
_PACKAGE = Path(__file__).parents[1]


def run_with_exit_code(command: Callable[..., int], /, *arguments: Any, **options: Any) -> int:
    """Call a command and return its exit code: 2 for wrong input, 1 for a later failure.

    Unexpected errors keep their traceback, so that users can report them.
    """
    try:
        with allow_interrupts():
            return command(*arguments, **options)
    except KeyboardInterrupt:
        return print_error("Stopped.", STOPPED)
    except Exception as error:
        sentence = _describe_error(error)
        if sentence is None:
            raise
        return print_error(sentence, 2 if isinstance(error, CadisError) else 1)


def print_error(sentence: str, code: int) -> int:
    """Print an error message with visible control characters, and return the exit code."""
    if not sentence.isprintable():
        from cadis._io import escape_controls  # noqa: PLC0415 - imports torch

        sentence = escape_controls(sentence)
    print(f"cadis: {sentence}", file=sys.stderr)
    return code


def _locate_error(error: Exception) -> str:
    """Return the file and line of the user's code that raised an error, or "" if it is ours."""
    frames = [
        frame
        for note in getattr(error, "__notes__", [])
        for frame in re.findall(r'File "([^"]+)", line (\d+)', note)
    ]
    frames = [f for f in frames if not Path(f[0]).is_relative_to(_PACKAGE) and Path(f[0]).is_file()]
    frames = [frame for frame in frames if "site-packages" not in frame[0]]
    return f" ({frames[-1][0]}, line {frames[-1][1]})" if frames else ""


def _describe_error(error: Exception) -> str | None:
    """Return an error message for the user, or None for an unexpected error."""
    if isinstance(error, CadisError | RunError):
        return f"{error}{_locate_error(error)}"
    if isinstance(error, BrokenPipeError):  # "cadis presets | head -1": click ends it silently
        return None
    if isinstance(error, OSError):
        path = f"{error.filename}: " if error.filename else ""
        return f"{path}{error.strerror or error}."
    if isinstance(error, UnicodeError):
        return f"A file or name is not in UTF-8: {error}."
    is_torch_error = isinstance(error, RuntimeError) and "allocate memory" in str(error)
    if isinstance(error, MemoryError) or is_torch_error:
        return "Out of memory; use fewer workers, fewer clients or a smaller model."
    return None


def exit_on_interrupt() -> None:
    """Let Ctrl-C end this process immediately."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # background jobs ignore Ctrl-C
        process = os.getpid()
        signal.signal(signal.SIGINT, lambda *_: _exit(process))


def _exit(main_process: int) -> None:
    """Exit; only the main process prints a message, not its workers."""
    if os.getpid() == main_process:
        _erase()
        os.write(2, b"cadis: Stopped.\n")
    os._exit(STOPPED)


@contextmanager
def allow_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt within this context."""
    before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    if before == signal.SIG_IGN:
        yield
        return
    try:
        sys.unraisablehook = lambda lost: _resend_interrupt(lost, hook)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = hook


def _resend_interrupt(
    lost: "sys.UnraisableHookArgs", hook: Callable[["sys.UnraisableHookArgs"], Any]
) -> None:
    """Send Ctrl-C again if Python ignored it, for example within ``__del__``."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        threading.Timer(_DELAY, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        hook(lost)


@contextmanager
def show_import_message() -> Iterator[None]:
    """Show on a terminal that PyTorch is being imported, and erase the message afterwards."""
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
        _write(f"\r{' ' * (len(_LOADING) + 2)}\r")  # and "^C" of the terminal


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _write(text: str) -> None:
    """Write immediately; ignore a closed terminal."""
    with suppress(OSError):
        os.write(2, text.encode())
