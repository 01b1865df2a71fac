"""Whatever goes wrong is one sentence and an exit code."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cadis
from cadis.cli.interrupting import STOPPED, interruptible
from cadis.errors import CadisError, RunError

_PACKAGE = Path(cadis.__file__).parent


def guarded(work: Callable[..., int], *arguments: Any) -> int:
    """Do the work and return its exit code: 2 for wrong input, 1 for what went wrong later.

    What is nobody's fault but ours keeps its traceback, so that it is reported.
    """
    try:
        with interruptible():
            return work(*arguments)
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
