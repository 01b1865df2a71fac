"""Logging a run to a tracker."""

import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from cadis.analysis import read_results
from cadis.server import OnRound, RoundRecord, RoundResult
from cadis.store import RunFolder, rare_classes
from cadis.trackers import Tracker, open_tracker


class Tracking:
    """A tracker that hears of every round, those before a stop included; or nobody."""

    def __init__(self, name: str | None, folder: RunFolder, group: str | None = None) -> None:
        """Open the tracker: whether it can be used is clear at once.

        Args:
            name: the tracker's, None for nobody.
            folder: that of the run.
            group: what the run is compared with, if it is.
        """
        self._folder, self._federation = folder, dict[str, Any]()
        self._tracker: Tracker | None = None
        if name is not None:
            path = folder.path
            called = path.name if group is None else f"{path.parent.name}, {path.name}"
            self._tracker = open_tracker(name, path, called, group, folder.read_config)

    def log_round(self, result: RoundResult) -> None:
        """Log a round; with the first of this process, the rounds of an earlier process too."""
        if self._tracker is not None:
            earlier = [] if self._federation else self._folder.read_history()
            self._log(self._tracker, [*earlier, result.record])

    def finish(self, figures: Sequence[Path] | None = None) -> None:
        """The run is complete: send the tracker what it lacks, and the figures.

        Args:
            figures: files of the figures; None to draw them.
        """
        if self._tracker is not None:
            if figures is None:  # matplotlib is imported only now, since it takes long
                results = read_results([self._folder.path])
                draw = import_module("cadis.report").draw_figures
                figures = list[Path](draw(results, self._folder.figures, pdf=False))
            self._log(self._tracker, self._folder.read_history())  # it may not have been tracked
            self._tracker.finish(self._folder.read_json("summary.json"), figures)

    def close(self) -> None:
        """Let go of the tracker, whatever has happened."""
        if self._tracker is not None:
            self._tracker.close()

    def _log(self, tracker: Tracker, records: Sequence[RoundRecord]) -> None:
        self._federation = self._federation or self._folder.read_json("federation.json")
        for record in records:
            tracker.log(record, rare_classes(self._federation), self._federation["classes"])


def call_each(*callbacks: OnRound | None) -> OnRound:
    """Return a callback that calls each of these with the result of a round."""

    def on_round(result: RoundResult) -> None:
        for callback in callbacks:
            if callback is not None:
                callback(result)

    return on_round


def check_tracker(name: str | None) -> None:
    """Refuse a tracker that is not there, before anything is run."""
    with tempfile.TemporaryDirectory(prefix="cadis-") as folder:
        Tracking(name, RunFolder(Path(folder))).close()
