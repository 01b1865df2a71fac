"""Processes for tests, which are all ended with the test."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

_TAG = "CADIS_TEST_PROCESSES"
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}


class Processes:
    """Starts processes; all their descendants have a tag in their environment."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._tag = folder, uuid4().hex
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process; its output goes to the log ``name``."""
        with self.log_path(name).open("ab") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                env={**os.environ, **_QUIET, **(environment or {}), _TAG: self._tag},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self._folder,
            )
        self._started.append(process)
        return process

    def finish(
        self,
        name: str,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        seconds: float = 300,
    ) -> int:
        """Run a process until it ends and return its exit code."""
        return self.start(name, command, environment).wait(timeout=seconds)

    def log_path(self, name: str) -> Path:
        """Return the path of the log of a process."""
        return self._folder / f"{name}.log"

    def log_paths(self) -> list[Path]:
        """Return the paths of all logs."""
        return sorted(self._folder.glob("*.log"))

    def read_log(self, name: str) -> str:
        """Return the output of a process."""
        path = self.log_path(name)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def list_alive(self) -> list[int]:
        """Return the ids of all processes with the tag, without zombies."""
        pids = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"{_TAG}={self._tag}".encode() in path.read_bytes():
                    pids.append(int(path.parent.name))
            except OSError:  # it has ended, or it belongs to another user
                continue
        return pids

    def end(self) -> None:
        """Terminate all processes; kill those that do not end."""
        for process in self._started:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + 6
        while self.list_alive() and time.monotonic() < deadline:
            self._collect()
            time.sleep(0.2)
        while pids := self.list_alive():
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            self._collect()
            time.sleep(0.2)
        for process in self._started:
            process.wait(timeout=5)

    def _collect(self) -> None:
        for process in self._started:
            process.poll()


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """Yield :class:`Processes`, which are ended at the end of the context."""
    started = Processes(folder)
    try:
        yield started
    finally:
        started.end()


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Wait until a condition is true; ``what`` describes it in the error."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds} seconds still not: {what}")
        time.sleep(0.2)
