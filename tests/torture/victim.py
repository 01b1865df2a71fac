"""The real command in a process of its own, forked so that nothing is imported twice."""

import ctypes
import faulthandler
import os
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

import torch

from cadis.cli.command_line import commands
from torture.disturbance import sketch
from torture.outcomes import Finding

Work: TypeAlias = Callable[[], int]
"""What a victim does; returns its exit code."""

_PATIENCE = 60.0
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_SENTENCE = re.compile(r"^(?:cadis: |Error: ).*[\w).'\]]", re.MULTILINE)


@dataclass(frozen=True)
class Ending:
    code: int
    hung: bool
    said: str
    complained: str

    @property
    def rounds(self) -> list[int]:
        return reported(self.said)

    @property
    def sentence(self) -> str:
        """What the user was told went wrong; empty if nothing was."""
        found = _SENTENCE.findall(self.complained)
        return str(found[-1]) if found else ""

    def fault(self) -> Finding | None:
        """What no command may ever do, if this one did it."""
        if self.hung:
            return Finding("hang", f"said last: {self.said[-200:]!r}")
        if "Traceback (most recent call last)" in self.complained:
            return Finding("traceback", self.complained.strip().splitlines()[-1])
        if self.code < 0:
            return Finding("signal", signal.Signals(-self.code).name)
        if self.code not in (0, 1, 2) or (self.code and not self.sentence):
            return Finding("wrong code", f"{self.code} and no sentence")
        return None

    @property
    def refused(self) -> bool:
        """Whether it ended with a sentence."""
        return self.fault() is None and self.code != 0


def reported(said: str) -> list[int]:
    """The rounds that a command has reported on the screen so far."""
    return [int(number) for number in re.findall(r"^round (\d+)/", said, re.MULTILINE)]


class Victim:
    """A process that is ended, with all of its own, whatever happens."""

    def __init__(self, work: Work, log: Path) -> None:
        self._log = log
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads
            self.number = os.fork()
        if self.number == 0:
            _live(work, log)
        self._code: int | None = None

    def __enter__(self) -> "Victim":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(everybody=True)
        self.wait()

    def kill(self, number: signal.Signals = signal.SIGKILL, everybody: bool = False) -> None:
        """Send it a signal, if it still lives; perhaps with the processes that it has started."""
        try:
            if everybody:
                os.killpg(self.number, number)
            elif self._code is None:
                os.kill(self.number, number)
        except ProcessLookupError:
            pass

    def has_ended(self) -> bool:
        if self._code is None:
            number, status = os.waitpid(self.number, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if number else None
        return self._code is not None

    def said(self) -> str:
        return _text(self._log.with_suffix(".out"))

    def wait(self, seconds: float = _PATIENCE) -> Ending:
        """Wait for its end; kill it if it takes too long."""
        deadline, hung = time.monotonic() + seconds, False
        while not self.has_ended():
            if time.monotonic() > deadline:
                hung, deadline = True, float("inf")
                self.kill(everybody=True)
            time.sleep(0.003)
        assert self._code is not None
        return Ending(self._code, hung, self.said(), _text(self._log.with_suffix(".err")))


def run_to_end(work: Work, log: Path, seconds: float = _PATIENCE) -> Ending:
    with Victim(work, log) as victim:
        return victim.wait(seconds)


def command(
    arguments: Sequence[str | Path], disturb: Callable[[], None] | None = None, draws: bool = False
) -> Work:
    """The command ``cadis`` with these arguments."""

    def work() -> int:
        if not draws:
            sketch()
        if disturb is not None:
            disturb()
        commands([str(argument) for argument in arguments], prog_name="cadis")
        return 0

    return work


def _live(work: Work, log: Path) -> None:
    """All of a victim's life; never returns."""
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)  # whatever becomes of us
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _redirect(log)
        warnings.resetwarnings()
        faulthandler.disable()  # the real command has none
        torch.set_num_threads(1)
        code = work()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: Path) -> None:
    """What is written goes to files, and nothing can be read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(log.with_suffix(suffix), flags, 0o644), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


torch.set_num_threads(1)
for module in (
    "cadis.cli.options",
    "cadis.cli.report",
    "cadis.cli.run",
    "matplotlib.backends.backend_agg",
    "torch.fx.experimental.symbolic_shapes",  # with sympy it takes as long as a run
):
    import_module(module)  # once, before forking
