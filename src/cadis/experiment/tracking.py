"""Telling a tracker of a run."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from cadis.analysis import read_results
from cadis.server import OnRound, RoundRecord, RoundResult
from cadis.store import PlannedRun, RunFolder, StudyCallbacks, StudyFolder, rare_classes
from cadis.trackers import Tracker, open_tracker


class Tracking:
    """A tracker that hears of every round, those before a stop included; or nobody."""

    def __init__(self, name: str | None, folder: RunFolder, group: str | None = None) -> None:
        """Whether the tracker can be used is clear at once.

        Args:
            name: the tracker's, None for nobody.
            folder: that of the run.
            group: what the run is compared with, if it is.
        """
        self._folder, self._tracker = folder, None
        if name is not None:
            self._tracker = _opened(name, folder, group)
        self._federation: dict[str, Any] = {}

    def listening(self, on_round: OnRound) -> OnRound:
        """Who hears of the rounds: the one given, and then the tracker."""
        tracker = self._tracker
        if tracker is None:
            return on_round

        def both(result: RoundResult) -> None:
            on_round(result)
            if not self._federation:  # the first round of this process: there may be earlier ones
                for record in self._folder.read_history():
                    self._tell(tracker, record)
            self._tell(tracker, result.record)

        return both

    def finish(self, figures: Sequence[Path] | None = None) -> None:
        """The run is complete: send the tracker what it lacks, and the figures.

        Args:
            figures: files of the figures; None to draw them.
        """
        if self._tracker is not None:
            figures = _draw_figures(self._folder) if figures is None else figures
            for record in self._folder.read_history():  # a finished run may not have been tracked
                self._tell(self._tracker, record)
            self._tracker.finish(self._folder.read_json("summary.json"), figures)

    def close(self) -> None:
        """Let go of the tracker, whatever has happened."""
        if self._tracker is not None:
            self._tracker.close()

    def _tell(self, tracker: Tracker, record: RoundRecord) -> None:
        if not self._federation:
            self._federation = self._folder.read_json("federation.json")
        tracker.log(record, rare_classes(self._federation), self._federation["classes"])


def _opened(name: str, folder: RunFolder, group: str | None) -> Tracker:
    called = folder.path.name if group is None else f"{folder.path.parent.name}, {folder.path.name}"
    return open_tracker(name, folder.path, called, group, folder.read_config)


def _draw_figures(folder: RunFolder) -> list[Path]:
    """Draw the figures of a run; matplotlib is imported only now, since it takes long."""
    draw = import_module("cadis.report").draw_figures
    figures: list[Path] = draw(read_results([folder.path]), folder.figures, pdf=False)
    return figures


def check_tracker(name: str | None) -> None:
    """Refuse a tracker that is not there, before anything is run."""
    with tempfile.TemporaryDirectory(prefix="cadis-") as folder:
        Tracking(name, RunFolder(Path(folder))).close()


@contextmanager
def tracked(
    callbacks: StudyCallbacks, track: str | None, folder: StudyFolder
) -> Iterator[StudyCallbacks]:
    """The callbacks of a study, with a tracker if one was asked for."""
    if track is None:
        yield callbacks
        return
    with closing(TrackedStudy(callbacks, track, folder.path.name)) as heard:
        yield heard


class TrackedStudy:
    """Callbacks of a study that also feed a tracker for each run."""

    def __init__(self, callbacks: StudyCallbacks, track: str, group: str) -> None:
        self.of_run = callbacks.of_run
        self._callbacks, self._track, self._group = callbacks, track, group
        self._tracking: Tracking | None = None

    def begin(self, run: PlannedRun) -> OnRound:
        """A tracker for this run."""
        self._tracking = Tracking(self._track, run.folder, self._group)
        return self._tracking.listening(self._callbacks.begin(run))

    def end(self, run: PlannedRun, reused: bool) -> None:
        """The tracker is told the rest; of a run that was there already, all that it lacks."""
        self._callbacks.end(run, reused)
        tracking = self._tracking or Tracking(self._track, run.folder, self._group)
        with closing(tracking):
            tracking.finish()
        self._tracking = None

    def fail(self, sentence: str) -> None:
        """The tracker is told that it was stopped."""
        self._callbacks.fail(sentence)
        self.close()

    def close(self) -> None:
        """Let go of a tracker whose run was interrupted."""
        if self._tracking is not None:
            self._tracking.close()
        self._tracking = None
