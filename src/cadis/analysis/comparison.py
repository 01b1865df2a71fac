"""Compare groups of runs: means, paired tests against a baseline, rounds to reach a target.

A group has the runs of one method, or of one setting of a sweep; they differ only in the seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from cadis.analysis.comparability import ComparableSet, split_comparable
from cadis.analysis.metrics import METRICS, Metric, Scores, make_task_metric
from cadis.analysis.results import Group, Results
from cadis.analysis.statistics import PairedTest, Spread, holm, paired_test
from cadis.store import format_metric_name

RANKING_METRIC = METRICS["ten_rounds"]
"""The metric that ranks groups: the mean of the last ten rounds.

The value of the best round would be unfair: the more a run fluctuates, the higher it is by chance.
"""

SIGNIFICANT = 0.05
"""Significance level of all tests."""
_DIGITS = 9  # means that are equal in these digits differ only in rounding errors
_TARGETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99)


@dataclass(frozen=True)
class TimeToTarget:
    """Rounds, or simulated seconds, that a group needs to reach a target.

    Attributes:
        rounds: rounds to the target, or seconds if :meth:`Comparison.measure_time_to` made this
            object: mean and standard deviation over the runs that reach it; None if no run does.
        num_reached: number of runs that reach the target.
        num_runs: number of runs of the group.
        speed_up: rounds (or seconds) of the baseline divided by those of the group, over the seeds
            with which both reach the target; None if there are no such seeds, and for the baseline
            itself.
    """

    rounds: Spread | None
    num_reached: int
    num_runs: int
    speed_up: float | None


@dataclass(frozen=True)
class Comparison:
    """Comparison of groups of runs; runs with the same seed form pairs.

    Example:
        >>> results = read_results([Path("runs/compare-digits")])  # doctest: +SKIP
        >>> comparison = Comparison(results)  # doctest: +SKIP
        >>> comparison.compute_spread(comparison.groups[0], METRICS["rare"])  # doctest: +SKIP
        Spread(mean=0.125, deviation=0.031, count=2)
    """

    results: Results

    @property
    def groups(self) -> list[Group]:
        """Groups that are compared."""
        return self.results.groups

    @cached_property
    def comparable_sets(self) -> list[ComparableSet]:
        """Sets of groups that solve the same problem; one set if all groups do."""
        return split_comparable(self.results)

    @property
    def all_comparable(self) -> bool:
        """Return whether all groups solve the same problem, so that they can be ranked."""
        return len(self.comparable_sets) == 1

    @property
    def has_several_comparisons(self) -> bool:
        """Return whether the groups form several sets, each compared on its own.

        A set with a single group has nothing to compare, so at least one set needs two groups.
        """
        sizes = [len(comparable.results.groups) for comparable in self.comparable_sets]
        return not self.all_comparable and max(sizes) > 1

    @property
    def baseline(self) -> Group | None:
        """The group that the others are compared with; None if not all are comparable."""
        index = self.results.baseline
        return None if index is None or not self.all_comparable else self.groups[index]

    @property
    def metric(self) -> str:
        """Name of the main metric in texts, such as "AUC"; its key is ``results.metric``."""
        return format_metric_name(self.results.metric)

    @property
    def metric_title(self) -> str:
        """Name of the main metric with a capital letter, for titles and the start of a sentence."""
        return self.metric[0].upper() + self.metric[1:]

    @cached_property
    def seeds(self) -> set[int]:
        """Seeds that all ranked groups have in common."""
        seeds = [{scores.seed for scores in group.scores} for group, _ in self.rank_groups()]
        return set.intersection(*seeds) if seeds else set()

    @property
    def is_conclusive(self) -> bool:
        """Return whether there is enough evidence to call a group better.

        This needs comparable groups with equal numbers of rounds, at least two common seeds and
        more than one round.
        """
        min_rounds = min(rounds for group in self.groups for rounds in group.rounds)
        is_enough = len(self.seeds) > 1 and min_rounds > 1
        return self.all_comparable and self.results.has_equal_rounds and is_enough

    def sort_groups(self) -> list[Group]:
        """Return groups in the order of tables.

        Ranked groups come first, the best of them at the top. They are followed by references,
        which train on pooled data (:attr:`Group.is_reference`), and by groups of which no round
        was tested. Groups with equal means keep their order. If not all groups are comparable, all
        keep it.
        """
        if not self.all_comparable:
            return self.groups
        first = [group for group, _ in self.rank_groups()]
        others = [group for group in self.groups if group not in first]
        return first + sorted(others, key=lambda group: not group.is_reference)

    @cached_property
    def task_metrics(self) -> tuple[Metric, ...]:
        """Metrics of the task that any run has, besides accuracy."""
        scores = [scores for group in self.groups for scores in group.scores]
        names = dict.fromkeys(name for entry in scores for name in entry.task_metrics)
        return tuple(map(make_task_metric, names))

    def compute_spread(self, group: Group, metric: Metric) -> Spread | None:
        """Return mean and deviation of a metric over the seeds; None if it was not computed."""
        values = [metric.compute(scores) for scores in group.scores]
        return Spread.from_values([value for value in values if value is not None])

    def test_against_baseline(self, group: Group, metric: Metric) -> PairedTest | None:
        """Test whether a group differs from the baseline, over their common seeds."""
        return self.test_groups(group, self.baseline, metric)

    def test_groups(self, group: Group, other: Group | None, metric: Metric) -> PairedTest | None:
        """Test whether two groups differ, over their common seeds."""
        pairs = _pair_by_seed(group, other, metric.compute)
        return paired_test([a for a, _ in pairs], [b for _, b in pairs])

    def find_indistinguishable(self, group: Group, metric: Metric) -> list[Group]:
        """Return the groups that do not differ significantly from a group (Holm-corrected)."""
        others = [other for other, _ in self.rank_groups() if other is not group]
        tests = [self.test_groups(group, other, metric) for other in others]
        p_values = holm([1.0 if test is None else test.p_value for test in tests])
        return [o for o, p_value in zip(others, p_values, strict=True) if p_value >= SIGNIFICANT]

    def compute_ratio(self, group: Group, metric: Metric) -> float | None:
        """Return the mean of a group divided by the baseline's mean, over their common seeds."""
        pairs = _pair_by_seed(group, self.baseline, metric.compute)
        total = sum(b for _, b in pairs)
        return sum(a for a, _ in pairs) / total if total else None

    @cached_property
    def targets(self) -> tuple[float, ...]:
        """Targets that the user chose, or values such as 0.9 that baseline and best group reach."""
        if self.results.targets:
            return self.results.targets
        best = max((_find_target(g) for g in self.groups if not g.is_reference), default=0)
        baseline = _find_target(self.baseline) if self.baseline else 0
        return tuple(sorted({best, baseline} - {0}))

    @property
    def has_clock(self) -> bool:
        """Return whether any run has simulated time, which needs the speeds of the clients."""
        return any(scores.round_end_times for group in self.groups for scores in group.scores)

    def count_rounds_to(self, group: Group, target: float) -> TimeToTarget:
        """Return the rounds that a group needs to reach a target."""
        return self._compute_time_to(group, lambda scores: scores.count_rounds_to(target))

    def measure_time_to(self, group: Group, target: float) -> TimeToTarget:
        """Return the simulated seconds that a group needs to reach a target."""
        return self._compute_time_to(group, lambda scores: scores.measure_time_to(target))

    def _compute_time_to(
        self, group: Group, time: Callable[[Scores], float | None]
    ) -> TimeToTarget:
        values = [value for scores in group.scores if (value := time(scores)) is not None]
        pairs = [] if group.is_reference else _pair_by_seed(group, self.baseline, time)
        total = sum(value for value, _ in pairs)
        speed_up = sum(value for _, value in pairs) / total if total else None
        return TimeToTarget(Spread.from_values(values), len(values), len(group.scores), speed_up)

    def correct_p_values(self, metric: Metric) -> dict[str, float]:
        """Return the Holm-corrected p-value of each group against the baseline, by label."""
        p_values = {
            group.label: test.p_value
            for group in self.groups
            if not group.is_reference
            and (test := self.test_against_baseline(group, metric)) is not None
        }
        return dict(zip(p_values, holm(list(p_values.values())), strict=True))

    def rank_groups(self) -> list[tuple[Group, Spread]]:
        """Return groups with the spread of their main metric, best first, without references."""
        ranking = [
            (group, spread)
            for group in self.groups
            if not group.is_reference
            and (spread := self.compute_spread(group, RANKING_METRIC)) is not None
        ]
        return sorted(ranking, key=lambda pair: -round(pair[1].mean, _DIGITS))


def _pair_by_seed(
    group: Group, other: Group | None, compute: Callable[[Scores], float | None]
) -> Sequence[tuple[float, float]]:
    """Return the values of two groups for each common seed; empty for a group and itself."""
    if other is None or group is other:
        return []
    by_seed = {scores.seed: compute(scores) for scores in other.scores}
    pairs = [(compute(scores), by_seed.get(scores.seed)) for scores in group.scores]
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def _find_target(group: Group) -> float:
    """Return the highest of ``_TARGETS`` that all runs of a group reach; 0 if there is none."""
    best = min((scores.best or 0 for scores in group.scores), default=0)
    return max((target for target in _TARGETS if target <= best), default=0)
