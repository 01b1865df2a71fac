"""What a tracker is, and what it is told about a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol

from cadis.errors import CadisError
from cadis.server import RoundRecord
from cadis.store import RunFolder

_FILE = "tracking.json"


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers know it.

    Attributes:
        folder: the run's folder.
        name: what people call the run.
        group: what it is compared with, if it is.
        options: tells all options, with a table for each part that has parameters; asked when
            the first round has ended, as some options are settled only then.
    """

    folder: Path
    name: str
    group: str | None
    options: Callable[[], Mapping[str, Any]]


class Tracker(Protocol):
    """Something that keeps the numbers of runs, to be looked at together.

    Nothing is written before the first round is logged, so that a run may still make its folder.
    Rounds that were logged before, by this or an earlier process, are passed over: a whole
    history can be logged again at any time.
    """

    name: ClassVar[str]

    def __init__(self, run: TrackedRun) -> None: ...

    def log(
        self, record: RoundRecord, rare_classes: Sequence[int], class_names: Sequence[str]
    ) -> None:
        """Keep a finished round."""

    def finish(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Keep the numbers of ``summary.json`` and pictures (PNG): the run is complete."""

    def close(self) -> None:
        """Let go of the tracker; a run that is not complete is marked as stopped."""


@dataclass(frozen=True)
class Past:
    """What a tracker has of a run already; kept in the run's folder.

    Attributes:
        tracker: the tracker's name.
        id: by which it knows the run, empty if it does not.
        round: the last round that was logged.
        finished: after how many rounds the run was complete, 0 if it was not.
    """

    tracker: str
    id: str = ""
    round: int = 0
    finished: int = 0

    @classmethod
    def read(cls, folder: Path, tracker: str) -> "Past":
        """What the run's folder says about this tracker; nothing of a new run."""
        return cls(tracker, **_read(folder).get(tracker, {}))

    def then(self, folder: Path, **changes: Any) -> "Past":
        """The same with some changes, which are written to the folder."""
        new = replace(self, **changes)
        values = {key: value for key, value in vars(new).items() if key != "tracker"}
        RunFolder(folder).write_json(_FILE, _read(folder) | {self.tracker: values})
        return new


def need(module: str) -> Any:
    """A package that not everybody has installed."""
    try:
        return import_module(module)
    except ImportError:
        raise CadisError("Install the trackers first: pip install 'cadis[trackers]'.") from None


def _read(folder: Path) -> dict[str, Any]:
    return RunFolder(folder).read_json(_FILE) if (folder / _FILE).exists() else {}
