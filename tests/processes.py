"""Real processes for tests, every one of which is ended at the end."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

_MARK = "CADIS_TEST_PROCESSES"
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}


class Processes:
    """Starts processes; all of their descendants carry a mark in their environment."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._mark = folder, uuid4().hex
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process that writes to a file of its name."""
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                env={**os.environ, **_QUIET, **(environment or {}), _MARK: self._mark},
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
        """Run a process to its end; its exit code."""
        return self.start(name, command, environment).wait(timeout=seconds)

    def log(self, name: str) -> Path:
        """What a process has written."""
        return self._folder / f"{name}.log"

    def logs(self) -> list[Path]:
        """What all processes have written."""
        return sorted(self._folder.glob("*.log"))

    def said(self, name: str) -> str:
        """The same as text."""
        path = self.log(name)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def alive(self) -> list[int]:
        """All processes that carry the mark, and are not about to be collected."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"{_MARK}={self._mark}".encode() in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:  # it has ended meanwhile, or is somebody else's
                continue
        return found

    def end(self) -> None:
        """Ask all to end, then make them."""
        for process in self._started:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + 6
        while self.alive() and time.monotonic() < deadline:
            self._collect()
            time.sleep(0.2)
        while left := self.alive():
            for number in left:
                os.kill(number, signal.SIGKILL)
            self._collect()
            time.sleep(0.2)
        for process in self._started:
            process.wait(timeout=5)

    def _collect(self) -> None:
        for process in self._started:
            process.poll()


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """Processes that are ended whatever happens."""
    started = Processes(folder)
    try:
        yield started
    finally:
        started.end()


def wait_until(holds: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds} seconds still not: {what}")
        time.sleep(0.2)
