"""What the page shows of a run or study while it works."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cadis.analysis import Results, Story, read_results
from cadis.core import CadisError
from cadis.report.page.data import now, page_data
from cadis.runs import RunFolder, StudyFolder, is_locked

_Version = tuple[int, bool]
"""What tells whether a run must be read again: bytes of its history, and whether it has ended."""


@dataclass
class Watched:
    """A folder that somebody may be working on.

    Attributes:
        path: a run's or a study's.
    """

    path: Path
    _stories: dict[Path, tuple[_Version, Story]] = field(default_factory=dict, init=False)
    _seen: object = field(default=None, init=False)
    _made: bytes = field(default=b"", init=False)
    _worked_on: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if not (StudyFolder(self.path).holds_study() or RunFolder(self.path).holds_run()):
            raise CadisError(f"There is no run and no comparison in the folder {self.path}.")

    def is_running(self) -> bool:
        """Whether a process works on it."""
        run = RunFolder(self.path).checkpoint.lock_file
        running = is_locked(StudyFolder(self.path).lock_file) or is_locked(run)
        self._worked_on = self._worked_on or running
        return running

    def data(self) -> bytes:
        """What the page wants to know; made anew only if something has changed."""
        running = self.is_running()
        seen = (running, [self._version(run) for run in self._runs()])
        if seen != self._seen:
            text = json.dumps(self._page(running), allow_nan=False, separators=(",", ":"))
            self._seen, self._made = seen, text.encode()
        return self._made

    def tag(self) -> str:
        """A name for what :meth:`data` returned last."""
        return f'"{hashlib.sha256(self._made).hexdigest()[:20]}"'

    def _runs(self) -> list[RunFolder]:
        if not StudyFolder(self.path).holds_study():
            return [RunFolder(self.path)]
        return [RunFolder(path.parent) for path in sorted(self.path.glob("*/*/config.toml"))]

    def _version(self, run: RunFolder) -> _Version:
        return run.history_size(), (run.path / "summary.json").exists()

    def _read(self, run: RunFolder) -> Story:
        """A run, read again only if it has changed."""
        version = self._version(run)
        known = self._stories.get(run.path)
        if known is None or known[0] != version:
            self._stories[run.path] = known = version, Story.read(run)
        return known[1]

    def _page(self, running: bool) -> dict[str, Any]:
        state = "running" if running else "ended" if self._worked_on else "idle"
        if not any(run.has_rounds() for run in self._runs()):
            live = {"state": state, "done": 0, "total": None, "note": ""}
            return {"title": str(self.path), "created": now(), "live": live, "methods": []}
        results = read_results([self.path], self._read)
        return page_data(results) | {"live": _live(results, state)}


def _live(results: Results, state: str) -> dict[str, Any]:
    """How far it is, and what was worked on last."""
    runs = [(group.label, story) for group in results.groups for story in group.stories]
    newest = max(runs, key=lambda run: (run[1].path / "history.jsonl").stat().st_mtime)
    return {
        "state": state,
        "done": sum(len(story.history) for _, story in runs),
        "total": results.planned_rounds,
        "note": f"{newest[0]}, seed {newest[1].seed}",
    }
