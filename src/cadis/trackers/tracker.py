"""What all trackers have in common: what they are told about a run, and what they have of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from cadis.errors import CadisError
from cadis.server import RoundRecord
from cadis.store import RunFolder
from cadis.trackers.scalars import scalars

Options: TypeAlias = Mapping[str, Any]

_FILE = "tracking.json"


@dataclass(frozen=True)
class Logged:
    """What a tracker has of a run already; kept in the run's folder.

    Attributes:
        id: by which it knows the run, empty if it does not.
        round: the last round that was logged.
        finished: after how many rounds the run was complete, 0 if it was not.
    """

    id: str = ""
    round: int = 0
    finished: int = 0


class Tracker(ABC):
    """Keeps the numbers of runs, to be looked at together.

    Nothing is written before the first round is logged, so that a run may still make its folder.
    Rounds that were logged before, by this or an earlier process, are passed over: a whole
    history can be logged again at any time.
    """

    name: ClassVar[str]

    def __init__(
        self, folder: Path, run_name: str, group: str | None, options: Callable[[], Options]
    ) -> None:
        """Take what :func:`~cadis.trackers.open_tracker` is given."""
        self._folder, self._run_name, self._group, self._options = folder, run_name, group, options
        self._logged = Logged(**self._read_all().get(self.name, {}))
        self._connect()

    def log(
        self, record: RoundRecord, rare_classes: Sequence[int], class_names: Sequence[str]
    ) -> None:
        """Keep a finished round."""
        if record.round > self._logged.round:
            self._put(scalars(record, rare_classes, class_names), record.round)
            self._remember(round=record.round)

    def finish(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Keep the numbers of ``summary.json`` and pictures (PNG): the run is complete."""
        if self._logged.finished != summary["rounds"]:
            self._put_summary(summary, figures)
            self._remember(finished=summary["rounds"])
        self._end(complete=True)

    def close(self) -> None:
        """Let go of the tracker; a run that is not complete is marked as stopped."""
        self._end(complete=False)

    @abstractmethod
    def _connect(self) -> None:
        """Find out whether the tracker can be used."""

    @abstractmethod
    def _put(self, values: Mapping[str, float], step: int) -> None:
        """Keep the numbers of a round."""

    @abstractmethod
    def _put_summary(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Keep the numbers and pictures of a complete run."""

    @abstractmethod
    def _end(self, *, complete: bool) -> None:
        """Close the run, if it is open."""

    def _remember(self, **changes: Any) -> None:
        """Change what the tracker has of the run, in the run's folder too."""
        self._logged = replace(self._logged, **changes)
        everything = self._read_all() | {self.name: vars(self._logged)}
        RunFolder(self._folder).write_json(_FILE, everything)

    def _read_all(self) -> dict[str, Any]:
        """Return what the run's folder says about all trackers; nothing of a new run."""
        is_new = not (self._folder / _FILE).exists()
        return {} if is_new else RunFolder(self._folder).read_json(_FILE)


def need(module: str) -> Any:
    """Import a package that not everybody has installed."""
    try:
        return import_module(module)
    except ImportError:
        raise CadisError("Install the trackers first: pip install 'cadis[trackers]'.") from None
