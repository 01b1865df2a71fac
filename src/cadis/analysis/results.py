"""Runs that are shown together, in groups.

A group has the runs of one method, or of one setting of a sweep; they differ only in the seed.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from cadis.analysis.metrics import Scores
from cadis.analysis.run_data import RunData
from cadis.store import PaperResults

_MAX_NAMES = 10  # if there are more classes, only their number is written


@dataclass(frozen=True)
class Group:
    """Runs that differ only in the seed.

    Attributes:
        name: name as users type it: a method, an ablation, or the values of a sweep.
        label: name in tables and figures.
        runs: one run per seed; at least one.
        cell: values of the parameters that a sweep or grid varies.
        metric: name of the main metric.
        short_label: label without the values of the grid cell, for tables in which all groups have
            the same values; if empty, ``label`` is used.
    """

    name: str
    label: str
    runs: list[RunData]
    cell: tuple[str, ...] = ()
    metric: str = "accuracy"
    short_label: str = ""

    @property
    def is_reference(self) -> bool:
        """Return whether the method trains on pooled data; such a reference is not ranked."""
        return self.runs[0].pools_clients

    @cached_property
    def scores(self) -> list[Scores]:
        """Scores of the finished runs, or of all runs if none is finished."""
        return [Scores.from_run(run_data, self.metric) for run_data in self._runs_to_score]

    @property
    def rounds(self) -> list[int]:
        """Distinct numbers of rounds of the runs that are scored."""
        return sorted({len(run_data.history) for run_data in self._runs_to_score})

    @property
    def _runs_to_score(self) -> list[RunData]:
        return [run_data for run_data in self.runs if run_data.is_finished] or self.runs


@dataclass(frozen=True)
class Results:
    """All groups of runs that are shown together.

    Attributes:
        kind: "run" (one run), "compare", "sweep", or "runs" (several folders that the user named).
        groups: groups of runs.
        command: command that repeats the runs.
        baseline: index of the group that the others are compared with, if any.
        targets: accuracies for which tables show the first round that reaches them; if empty, some
            are chosen from the data.
        parameters: names of the parameters that a sweep or grid varies.
        planned: number of planned runs.
        planned_rounds: total number of rounds of the planned runs.
        paper: results of the paper for the same experiment, if there are any.
    """

    kind: str
    groups: list[Group]
    command: str
    baseline: int | None = None
    targets: tuple[float, ...] = ()
    parameters: tuple[str, ...] = ()
    planned: int = 0
    planned_rounds: int = 0
    paper: PaperResults | None = None

    @property
    def runs(self) -> list[RunData]:
        """Runs of all groups."""
        return [run_data for group in self.groups for run_data in group.runs]

    @property
    def runs_by_group(self) -> list[tuple[int, RunData]]:
        """Runs of all groups, each with the index of its group."""
        return [(index, run) for index, group in enumerate(self.groups) for run in group.runs]

    @property
    def is_complete(self) -> bool:
        """Return whether all planned runs are finished."""
        return len(self.runs) == self.planned and all(run.is_finished for run in self.runs)

    @property
    def has_equal_rounds(self) -> bool:
        """Return whether all groups have the same number of rounds."""
        return len({tuple(group.rounds) for group in self.groups}) == 1

    @property
    def metric(self) -> str:
        """Name of the main metric."""
        return self.groups[0].metric

    @property
    def max_rounds(self) -> int:
        """Number of rounds of the longest run."""
        return max(len(run_data.history) for run_data in self.runs)

    @property
    def task_metric_names(self) -> list[str]:
        """Names of the metrics of the task that any run has, besides accuracy."""
        names = (name for run in self.runs for record in run.history for name in record.metrics)
        return list(dict.fromkeys(names))

    @property
    def metric_names(self) -> list[str]:
        """Names of all metrics that can be the main metric."""
        return list(dict.fromkeys(["accuracy", *self.task_metric_names]))

    def with_metric(self, metric: str) -> "Results":
        """Return the same results with another main metric."""
        return replace(self, groups=[replace(group, metric=metric) for group in self.groups])

    def get_paper_accuracy(self, group: Group) -> float | None:
        """Return the best accuracy that the paper reports for a method; None if it reports none.

        The method that the paper calls CADIS is ``cadis-paper`` here. If this is not among the
        groups, the paper's accuracy is returned for ``cadis``.
        """
        if self.paper is None or self.metric != "accuracy":
            return None
        name = group.name
        if any(other.name == "cadis-paper" for other in self.groups):
            name = {"cadis-paper": "cadis", "cadis": ""}.get(name, name)
        percent = self.paper.accuracy.get(name)
        return None if percent is None else percent / 100

    @property
    def own_data(self) -> str:
        """Name of the data that each client is tested on; "own data" if runs differ."""
        names = {run_data.own_data for run_data in self.runs if run_data.client_accuracy}
        return names.pop() if len(names) == 1 else "own data"

    @property
    def same_classes(self) -> bool:
        """Return whether all runs have the same classes."""
        return len({tuple(run_data.classes) for run_data in self.runs}) == 1

    @property
    def rare(self) -> list[int]:
        """Indices of the rare classes; empty if they differ between runs."""
        first = self.runs[0].rare
        is_same = self.same_classes and all(run_data.rare == first for run_data in self.runs)
        return first if is_same else []

    @property
    def rare_classes_text(self) -> str:
        """Names of the rare classes in one line; empty if no class is rare."""
        if not any(run_data.rare for run_data in self.runs):
            return ""
        names = [self.runs[0].classes[index] for index in self.rare]
        if len(names) > _MAX_NAMES:
            return f"{len(names)} classes"
        return ", ".join(names) or "they differ between runs"
