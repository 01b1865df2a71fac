"""The command in a forked process, so that imports are not repeated."""

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
from torture.disturbance import skip_figures
from torture.outcomes import Finding

Work: TypeAlias = Callable[[], int]
"""The work of a victim; it returns the exit code."""

_TIMEOUT = 60.0
_PR_SET_PDEATHSIG = 1
_SENTENCE = re.compile(r"^(?:cadis: |Error: ).*[\w).'\]]", re.MULTILINE)


@dataclass(frozen=True)
class Ending:
    """The end of a process: exit code and output."""

    code: int
    hung: bool
    stdout: str
    stderr: str

    @property
    def rounds(self) -> list[int]:
        return parse_rounds(self.stdout)

    @property
    def sentence(self) -> str:
        """The error message for the user; empty if there is none."""
        sentences = _SENTENCE.findall(self.stderr)
        return str(sentences[-1]) if sentences else ""

    def find_fault(self) -> Finding | None:
        """Return a fault that no command may have; None if there is none."""
        if self.hung:
            return Finding("hang", f"last output: {self.stdout[-200:]!r}")
        if "Traceback (most recent call last)" in self.stderr:
            return Finding("traceback", self.stderr.strip().splitlines()[-1])
        if self.code < 0:
            return Finding("signal", signal.Signals(-self.code).name)
        if self.code not in (0, 1, 2) or (self.code and not self.sentence):
            return Finding("wrong code", f"{self.code} without an error message")
        return None

    @property
    def is_refused(self) -> bool:
        """Return whether it ended with an error message."""
        return self.find_fault() is None and self.code != 0


def parse_rounds(output: str) -> list[int]:
    """Return the rounds that a command has printed so far."""
    return [int(number) for number in re.findall(r"^round (\d+)/", output, re.MULTILINE)]


class Victim:
    """A process that is killed with its children at the end of the context."""

    def __init__(self, work: Work, log: Path) -> None:
        self._log = log
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads
            self.number = os.fork()
        if self.number == 0:
            _run_child(work, log)
        self._code: int | None = None

    def __enter__(self) -> "Victim":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(with_children=True)
        self.wait()

    def kill(self, number: signal.Signals = signal.SIGKILL, with_children: bool = False) -> None:
        """Send a signal to the process, or to its process group if ``with_children``."""
        try:
            if with_children:
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

    def read_output(self) -> str:
        return _text(self._log.with_suffix(".out"))

    def wait(self, seconds: float = _TIMEOUT) -> Ending:
        """Wait for the end of the process; kill it after a timeout."""
        deadline, hung = time.monotonic() + seconds, False
        while not self.has_ended():
            if time.monotonic() > deadline:
                hung, deadline = True, float("inf")
                self.kill(with_children=True)
            time.sleep(0.003)
        assert self._code is not None
        return Ending(self._code, hung, self.read_output(), _text(self._log.with_suffix(".err")))


def run_to_end(work: Work, log: Path, seconds: float = _TIMEOUT) -> Ending:
    with Victim(work, log) as victim:
        return victim.wait(seconds)


def make_command(
    arguments: Sequence[str | Path],
    disturb: Callable[[], None] | None = None,
    draw_figures: bool = False,
) -> Work:
    """Return the work of the command ``cadis`` with these arguments."""

    def work() -> int:
        if not draw_figures:
            skip_figures()
        if disturb is not None:
            disturb()
        commands([str(argument) for argument in arguments], prog_name="cadis")
        return 0

    return work


def _run_child(work: Work, log: Path) -> None:
    """Run the work in the forked process and exit."""
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # if the parent dies
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _redirect(log)
        warnings.resetwarnings()
        faulthandler.disable()  # the command does not use it
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
    """Redirect the output to files; the input is empty."""
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
    "torch.fx.experimental.symbolic_shapes",  # it imports sympy, which takes as long as a run
):
    import_module(module)  # once, before forking
