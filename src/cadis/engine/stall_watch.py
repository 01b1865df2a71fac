"""Detection of processes that are stopped (SIGSTOP), or that seem to hang.

A client may train for hours, so a process that uses CPU time is never suspicious.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

INTERVAL = 1.0
"""Seconds between two checks of a process."""

STOPPED_LIMIT = 30.0
"""Seconds after which a stopped process is given up."""

_QUIET_LIMIT = 60.0
"""Seconds with almost no CPU time after which a process seems to hang."""

_BUSY_SHARE = 0.01
"""Share of the time for which a process must use a CPU, or else it is quiet."""

_USER_TIME, _SYSTEM_TIME = 11, 12
"""Fields of /proc/PID/stat after the name of the process: CPU time in clock ticks."""

Stall: TypeAlias = Literal["stopped", "stopped too long", "quiet"]
"""A state of a process that is worth a message."""


@dataclass
class StallWatch:
    """Observes one process while it works.

    Only time between checks counts. If this process is stopped too, as with Ctrl-Z, the time of
    the interruption does not count.

    Attributes:
        pid: id of a child process.
    """

    pid: int
    _checked: float = field(default_factory=time.monotonic)
    _stopped: float = 0.0
    _quiet: float = 0.0
    _cpu_seconds: float = 0.0
    _reported: set[Stall] = field(default_factory=set)

    def begin(self) -> None:
        """Note that the process gets new work."""
        self._checked, self._stopped, self._quiet = time.monotonic(), 0.0, 0.0

    def check(self) -> Stall | None:
        """Return a state that was not reported before; None if all is well."""
        elapsed = time.monotonic() - self._checked
        if elapsed < INTERVAL:
            return None
        self._checked += elapsed
        elapsed = min(elapsed, 2 * INTERVAL)
        if is_stopped(self.pid):
            self._stopped += elapsed
            return self._report("stopped too long" if self._stopped > STOPPED_LIMIT else "stopped")
        self._stopped = 0.0
        return self._report("quiet") if self._is_quiet(elapsed) else None

    def _is_quiet(self, elapsed: float) -> bool:
        self._quiet += elapsed
        cpu_seconds = read_cpu_seconds(self.pid)
        if cpu_seconds is None or cpu_seconds - self._cpu_seconds > _BUSY_SHARE * self._quiet:
            self._cpu_seconds, self._quiet = cpu_seconds or 0.0, 0.0
        return self._quiet > _QUIET_LIMIT

    def _report(self, stall: Stall) -> Stall | None:
        if stall in self._reported:
            return None
        self._reported.add(stall)
        return stall


def is_stopped(pid: int) -> bool:
    """Return whether a child process is stopped; False where the system cannot tell."""
    if not hasattr(os, "waitid"):
        return False
    try:  # WNOWAIT leaves the state for others to read
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def read_cpu_seconds(pid: int) -> float | None:
    """Return the CPU time of a process in seconds; None if it is unknown."""
    try:
        numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(numbers[_USER_TIME]) + int(numbers[_SYSTEM_TIME])) / os.sysconf("SC_CLK_TCK")
