"""Runs that are shown together, grouped by what they have in common but the seed."""

from dataclasses import dataclass, replace
from functools import cached_property

from cadis.analysis.run_data import RunData
from cadis.analysis.scores import Scores

_MOST_NAMES = 10
"""Of more classes, only the number is told."""


@dataclass(frozen=True)
class Group:
    """Runs of one thing with several seeds.

    Attributes:
        name: as users type it: a method, an ablation, or a cell of a sweep.
        label: as tables and figures call it.
        runs: its runs, at least one, by seed.
        cell: where parameters are varied, their values.
        metric: the measure that decides.
        plain: its label among rivals alone; empty if that is the same.
    """

    name: str
    label: str
    runs: list[RunData]
    cell: tuple[str, ...] = ()
    metric: str = "accuracy"
    plain: str = ""

    @property
    def is_reference(self) -> bool:
        """Whether it is no federation, but the line that federations are measured by."""
        return self.runs[0].pools_clients

    @cached_property
    def scores(self) -> list[Scores]:
        """Those of the runs that have ended; of all, if none has."""
        return [Scores.of(run_data, self.metric) for run_data in self._scored]

    @property
    def rounds(self) -> list[int]:
        """How many rounds the runs have that are scored, each number once."""
        return sorted({len(run_data.history) for run_data in self._scored})

    @property
    def _scored(self) -> list[RunData]:
        return [run_data for run_data in self.runs if run_data.finished] or self.runs


@dataclass(frozen=True)
class Results:
    """All that is shown together.

    Attributes:
        kind: "run", "compare", "sweep" or "runs".
        groups: what is compared.
        command: what repeats it.
        baseline: the position of the group that the others are compared with, if any.
        targets: accuracies whose first round is asked for; empty for some that fit.
        parameters: in a sweep or a grid, the names of the parameters that are varied.
        planned: how many runs there are to be.
        planned_rounds: how many rounds they are to have together.
    """

    kind: str
    groups: list[Group]
    command: str
    baseline: int | None = None
    targets: tuple[float, ...] = ()
    parameters: tuple[str, ...] = ()
    planned: int = 0
    planned_rounds: int = 0

    @property
    def runs(self) -> list[RunData]:
        """All runs of all groups."""
        return [run_data for group in self.groups for run_data in group.runs]

    @property
    def complete(self) -> bool:
        """Whether all runs are there and have ended."""
        return len(self.runs) == self.planned and all(s.finished for s in self.runs)

    @property
    def comparable(self) -> bool:
        """Whether all groups have the same number of rounds."""
        return len({tuple(group.rounds) for group in self.groups}) == 1

    @property
    def metric(self) -> str:
        """The measure that decides."""
        return self.groups[0].metric

    def judged_by(self, metric: str) -> "Results":
        """The same, but another measure decides."""
        return replace(self, groups=[replace(group, metric=metric) for group in self.groups])

    @property
    def own_data(self) -> str:
        """What each client is tested on, in words: all runs have the same, or it is not said."""
        told = {run_data.own_data for run_data in self.runs if run_data.client_accuracy}
        return told.pop() if len(told) == 1 else "own data"

    @property
    def rare(self) -> list[int]:
        """The rare classes, if they are the same in all runs."""
        first = self.runs[0].rare
        return first if all(run_data.rare == first for run_data in self.runs) else []

    @property
    def rare_in_words(self) -> str:
        """Which classes are rare; empty if none are."""
        if not any(run_data.rare for run_data in self.runs):
            return ""
        names = self.runs[0].names(self.rare)
        if len(names) > _MOST_NAMES:
            return f"{len(names)} classes"
        return ", ".join(names) or "which these are depends on the seed"
