"""The runs of a study, and what is called as they go on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from cadis._io import Callbacks
from cadis.server import OnRound, RoundRecord
from cadis.store.folder import RunFolder
from cadis.store.storage import DamagedError
from cadis.store.study import Study, StudyFolder, Variant


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study.

    Attributes:
        variant: what is run.
        seed: with which seed.
        folder: where.
    """

    variant: Variant
    seed: int
    folder: RunFolder

    @property
    def rounds(self) -> int:
        """How many rounds it is to have."""
        rounds: int = self.variant.options["rounds"]
        return rounds

    def done(self) -> list[RoundRecord]:
        """The rounds that are there already."""
        try:
            return self.folder.read_history() if self.folder.holds_run() else []
        except DamagedError:  # it is told when the run is to go on
            return []

    def finished(self) -> bool:
        """Whether all of them are there, and nothing is left to be written again."""
        if not (self.folder.path / "summary.json").exists() or len(self.done()) != self.rounds:
            return False
        try:
            self.folder.read_json("federation.json")
            self.folder.read_json("summary.json")
        except DamagedError:
            return False
        return True


class StudyCallbacks(Protocol):
    """What is called as a study goes on.

    Attributes:
        of_run: what is called as each of its runs goes on.
    """

    of_run: Callbacks

    def begin(self, run: PlannedRun) -> OnRound:
        """A run begins or goes on; returns who hears of its rounds."""

    def end(self, run: PlannedRun, reused: bool) -> None:
        """A run has ended, or was there already."""

    def fail(self, sentence: str) -> None:
        """A run could not go on."""


def planned_runs(folder: StudyFolder, study: Study) -> Iterator[PlannedRun]:
    """All runs, seed by seed: what is there at any time can be compared."""
    for seed in study.seeds:
        for variant in study.variants:
            yield PlannedRun(variant, seed, folder.run_folder(variant, seed))
