"""Runs that are shown together, grouped by what they have in common but the seed."""

from dataclasses import dataclass, replace
from functools import cached_property

from cadis.analysis.metrics import Scores
from cadis.analysis.run_data import RunData
from cadis.store import PaperReport

_MOST_NAMES = 10  # of more classes, only the number is told


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
        paper: what the paper reports of the same, if it does.
    """

    kind: str
    groups: list[Group]
    command: str
    baseline: int | None = None
    targets: tuple[float, ...] = ()
    parameters: tuple[str, ...] = ()
    planned: int = 0
    planned_rounds: int = 0
    paper: PaperReport | None = None

    @property
    def runs(self) -> list[RunData]:
        """All runs of all groups."""
        return [run_data for group in self.groups for run_data in group.runs]

    @property
    def numbered_runs(self) -> list[tuple[int, RunData]]:
        """All runs, each with the position of its group."""
        return [(number, run) for number, group in enumerate(self.groups) for run in group.runs]

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

    @property
    def longest(self) -> int:
        """The rounds of the run that has most of them."""
        return max(len(run_data.history) for run_data in self.runs)

    @property
    def further_measures(self) -> list[str]:
        """Measures of the task that any run has, besides accuracy."""
        found = (name for run in self.runs for record in run.history for name in record.measures)
        return list(dict.fromkeys(found))

    @property
    def measured(self) -> list[str]:
        """What can decide: accuracy, and the further measures that a run has."""
        return list(dict.fromkeys(["accuracy", *self.further_measures]))

    def judged_by(self, metric: str) -> "Results":
        """The same, but another measure decides, of which more is better."""
        return replace(self, groups=[replace(group, metric=metric) for group in self.groups])

    def in_paper(self, group: Group) -> float | None:
        """The paper's best accuracy of a group's method; None if it has none.

        Its CADIS is what is called cadis-paper here; another stands beside it only without that.
        """
        if self.paper is None or self.metric != "accuracy":
            return None
        name = group.name
        if any(other.name == "cadis-paper" for other in self.groups):
            name = {"cadis-paper": "cadis", "cadis": ""}.get(name, name)
        found = self.paper.accuracy.get(name)
        return None if found is None else found / 100

    @property
    def own_data(self) -> str:
        """What each client is tested on, in words: all runs have the same, or it is not said."""
        told = {run_data.own_data for run_data in self.runs if run_data.client_accuracy}
        return told.pop() if len(told) == 1 else "own data"

    @property
    def same_classes(self) -> bool:
        """Whether all runs tell the same classes apart."""
        return len({tuple(run_data.classes) for run_data in self.runs}) == 1

    @property
    def rare(self) -> list[int]:
        """The rare classes, if they are the same in all runs."""
        first = self.runs[0].rare
        alike = self.same_classes and all(run_data.rare == first for run_data in self.runs)
        return first if alike else []

    @property
    def rare_in_words(self) -> str:
        """Which classes are rare; empty if none are."""
        if not any(run_data.rare for run_data in self.runs):
            return ""
        names = [self.runs[0].classes[number] for number in self.rare]
        if len(names) > _MOST_NAMES:
            return f"{len(names)} classes"
        return ", ".join(names) or "not the same in all runs"
