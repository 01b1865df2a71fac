"""What the page shows of a run or study while it works."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cadis.analysis import Results, RunData, is_result, naming, read_results
from cadis.errors import CadisError
from cadis.report.page.content import now, page_data
from cadis.store import RunFolder, StudyFolder, is_locked

_Version = tuple[tuple[int, int] | None, ...]
"""What tells whether files must be read again: when each was written and how long it is."""
_FILES = ("config.toml", "history.jsonl", "federation.json", "summary.json")
_REST = 4.0
"""A page is made anew only after so many times as long as making the last one took: a run that is
watched must not wait for its page."""


class Watched:
    """A folder of a run or a study that somebody may be working on.

    Its ``clock`` tells seconds. While the page is being made, ``making`` is true.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self.clock, self.making = path, clock, False
        self._runs_read: dict[Path, tuple[_Version, RunData]] = {}
        self._made = b""
        self._seen: object = None
        self._next, self._was_running, self._worked_on = 0.0, False, False
        self._check()

    def is_running(self) -> bool:
        """Whether a process works on it."""
        run = RunFolder(self.path).checkpoint.lock_file
        running = is_locked(StudyFolder(self.path).lock_file) or is_locked(run)
        self._worked_on = self._worked_on or running
        return running

    def data(self) -> bytes:
        """Return what the page shows; made anew only if something has changed, and not too often.

        What is damaged is told on the page, and looked at again: it may be put right.
        """
        running = self.is_running()
        seen = (running, self._versions())
        due = self.clock() >= self._next or running != self._was_running
        if not self._made or (seen != self._seen and due):
            first, started = not self._made, self.clock()
            self.making, self._was_running = True, running
            try:
                self._made, self._seen = self._text(running), seen
            except CadisError as error:
                page = _empty_page(self.path, "damaged", str(error))
                self._made, self._seen = json.dumps(page).encode(), None
            finally:
                self.making = False
            ended = self.clock()  # the first page had to wait for what is imported
            self._next = ended if first else ended + _REST * (ended - started)
        return self._made

    def tag(self) -> str:
        """A name for what :meth:`data` returned last."""
        return f'"{hashlib.sha256(self._made).hexdigest()[:20]}"'

    def _versions(self) -> list[_Version]:
        study = _version(self.path, ["study.json"])
        return [study, *(_version(run.path, _FILES) for run in self._runs())]

    def _runs(self) -> list[RunFolder]:
        if not StudyFolder(self.path).holds_study():
            return [RunFolder(self.path)]
        return [RunFolder(path.parent) for path in sorted(self.path.glob("*/*/config.toml"))]

    def _read(self, run: RunFolder) -> RunData:
        """A run, read again only if it has changed."""
        version = _version(run.path, _FILES)
        known = self._runs_read.get(run.path)
        if known is None or known[0] != version:
            self._runs_read.pop(run.path, None)  # not both at once: a history may be large
            self._runs_read[run.path] = known = version, RunData.read(run)
        return known[1]

    def _text(self, running: bool) -> bytes:
        state = "running" if running else "ended" if self._worked_on else "idle"
        with naming(self.path):
            self._check()
            page = _empty_page(self.path, state)
            if any(run.has_rounds() for run in self._runs()):
                results = read_results([self.path], self._read)
                page = page_data(results) | {"live": _live(results, state)}
            return json.dumps(page, allow_nan=False, separators=(",", ":")).encode()

    def _check(self) -> None:
        if not is_result(self.path):
            raise CadisError(f"There is no run and no comparison in the folder {self.path}.")


def _version(folder: Path, names: Sequence[str]) -> _Version:
    """When each of the files was written, and how long it is; None for one that is not there."""
    found: list[tuple[int, int] | None] = []
    for name in names:
        try:
            status = (folder / name).stat()
            found.append((status.st_mtime_ns, status.st_size))
        except OSError:
            found.append(None)
    return tuple(found)


def _empty_page(path: Path, state: str, note: str = "") -> dict[str, Any]:
    live = {"state": state, "done": 0, "total": None, "note": note}
    return {"title": str(path), "created": now(), "live": live, "methods": []}


def _live(results: Results, state: str) -> dict[str, Any]:
    """How far it is, and what was worked on last."""
    runs = [(group.label, run_data) for group in results.groups for run_data in group.runs]
    newest = max(runs, key=lambda run: (run[1].path / "history.jsonl").stat().st_mtime)
    return {
        "state": state,
        "done": sum(len(run_data.history) for _, run_data in runs),
        "total": results.planned_rounds,
        "note": f"{newest[0]}, seed {newest[1].seed}",
    }
