"""Base class of all trackers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from cadis._io import has_name
from cadis.errors import CadisError
from cadis.server import RoundRecord
from cadis.store import RunFolder
from cadis.trackers.scalars import collect_scalars

Options: TypeAlias = Mapping[str, Any]

_FILE = "tracking.json"


@dataclass(frozen=True)
class TrackingState:
    """Progress of logging a run to one tracker, saved in the folder of the run.

    Attributes:
        id: id of the run in the tracker; empty if the run is not in the tracker yet.
        round: the last round that was logged.
        finished: the round after which the summary was logged; 0 if it was not logged yet.
    """

    id: str = ""
    round: int = 0
    finished: int = 0


class Tracker(ABC):
    """Base class of trackers, which log the metrics of a run.

    Nothing is written to the folder of the run before the first round is logged, because a new run
    needs an empty folder. Rounds that were logged before, also by an earlier process, are skipped,
    so you can log a whole history again at any time.
    """

    name: ClassVar[str]

    def __init__(
        self, folder: Path, run_name: str, group: str | None, options: Callable[[], Options]
    ) -> None:
        """Create a tracker with the arguments of :func:`~cadis.trackers.open_tracker`."""
        self._folder, self._run_name, self._group, self._options = folder, run_name, group, options
        self._state = TrackingState(**self._read_states().get(self.name, {}))
        self._connect()

    def log(
        self, record: RoundRecord, rare_classes: Sequence[int], class_names: Sequence[str]
    ) -> None:
        """Log a finished round.

        Args:
            record: the record of the round.
            rare_classes: indices of the rare classes.
            class_names: names of all classes.
        """
        if record.round > self._state.round:
            self._log_scalars(collect_scalars(record, rare_classes, class_names), record.round)
            self._save_state(round=record.round)

    def finish(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Log the end of a complete run.

        Args:
            summary: content of ``summary.json``.
            figures: paths of PNG files.
        """
        if self._state.finished != summary["rounds"]:
            self._log_summary(summary, figures)
            self._save_state(finished=summary["rounds"])
        self._close_run(complete=True)

    def close(self) -> None:
        """Close the tracker. A run that is not complete is marked as stopped."""
        self._close_run(complete=False)

    @abstractmethod
    def _connect(self) -> None:
        """Check that the tracker can be used; raise a CadisError if not."""

    @abstractmethod
    def _log_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Log the scalars of a round."""

    @abstractmethod
    def _log_summary(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Log the summary and the figures of a complete run."""

    @abstractmethod
    def _close_run(self, *, complete: bool) -> None:
        """Close the run in the tracker, if it is open."""

    def _save_state(self, **changes: Any) -> None:
        """Change fields of the state, and save the state in the folder of the run."""
        self._state = replace(self._state, **changes)
        states = self._read_states() | {self.name: vars(self._state)}
        RunFolder(self._folder).write_json(_FILE, states)

    def _read_states(self) -> dict[str, Any]:
        """Return the saved states of all trackers by name; empty for a new run."""
        is_new = not has_name(self._folder / _FILE)
        return {} if is_new else RunFolder(self._folder).read_json(_FILE)


def import_optional(module: str) -> Any:
    """Import a module of an optional dependency."""
    try:
        return import_module(module)
    except ImportError:
        raise CadisError("Install the trackers first: pip install 'cadis[trackers]'.") from None
