"""Whatever goes wrong is one sentence and an exit code."""

import sys
from collections.abc import Callable
from typing import Any

from cadis.core import CadisError, RunError


def guarded(work: Callable[..., int], *arguments: Any) -> int:
    """Do the work and return its exit code: 2 for wrong input, 1 for what went wrong later."""
    try:
        return work(*arguments)
    except CadisError as error:
        return say(str(error), 2)
    except RunError as error:
        return say(str(error), 1)
    except KeyboardInterrupt:
        return say("Stopped.", 130)


def say(sentence: str, code: int) -> int:
    """Tell the user, and return the exit code."""
    print(f"cadis: {sentence}", file=sys.stderr)
    return code
