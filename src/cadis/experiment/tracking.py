"""Log a run to an experiment tracker."""

import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from cadis.analysis import read_results
from cadis.server import OnRound, RoundRecord, RoundResult
from cadis.store import RunFolder, find_rare_classes
from cadis.trackers import Tracker, open_tracker


class Tracking:
    """Log all rounds of a run to a tracker, including the rounds before it was resumed."""

    def __init__(self, name: str | None, folder: RunFolder, group: str | None = None) -> None:
        """Open the tracker, so that a missing package is reported before training.

        Args:
            name: the name of the tracker; None to log nothing.
            folder: the folder of the run.
            group: the name of the study to which the run belongs, if any.
        """
        self._folder, self._federation = folder, dict[str, Any]()
        self._tracker: Tracker | None = None
        if name is not None:
            path = folder.path
            title = path.name if group is None else f"{path.parent.name}, {path.name}"
            self._tracker = open_tracker(name, path, title, group, folder.read_config)

    def log_round(self, result: RoundResult) -> None:
        """Log a round; the first call also logs the rounds of an earlier process."""
        if self._tracker is not None:
            earlier = [] if self._federation else self._folder.read_history()
            self._log(self._tracker, [*earlier, result.record])

    def finish(self, figures: Sequence[Path] | None = None) -> None:
        """Log the missing rounds, the summary and the figures of a complete run.

        Args:
            figures: the files of the figures; None to draw them.
        """
        if self._tracker is not None:
            if figures is None:  # imports matplotlib, which is slow
                results = read_results([self._folder.path])
                draw = import_module("cadis.report").draw_figures
                figures = list[Path](draw(results, self._folder.figures, pdf=False))
            self._log(self._tracker, self._folder.read_history())  # some rounds may be missing
            self._tracker.finish(self._folder.read_json("summary.json"), figures)

    def close(self) -> None:
        """Close the tracker, also after an error."""
        if self._tracker is not None:
            self._tracker.close()

    def _log(self, tracker: Tracker, records: Sequence[RoundRecord]) -> None:
        self._federation = self._federation or self._folder.read_json("federation.json")
        for record in records:
            tracker.log(record, find_rare_classes(self._federation), self._federation["classes"])


def combine_callbacks(*callbacks: OnRound | None) -> OnRound:
    """Return a callback that calls all these callbacks with the result of a round."""

    def on_round(result: RoundResult) -> None:
        for callback in callbacks:
            if callback is not None:
                callback(result)

    return on_round


def check_tracker(name: str | None) -> None:
    """Raise an error if a tracker is unknown or not installed, before any run starts."""
    with tempfile.TemporaryDirectory(prefix="cadis-") as folder:
        Tracking(name, RunFolder(Path(folder))).close()
