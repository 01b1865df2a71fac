"""Who is better, by how much, and whether that may be chance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from cadis.analysis.comparability import Cell, cells_of
from cadis.analysis.metrics import MEASURE, Measure, Scores, task_measure
from cadis.analysis.results import Group, Results
from cadis.analysis.statistics import PairedTest, Spread, holm, paired_test
from cadis.store import metric_words

HEADLINE = MEASURE["ten_rounds"]
"""What decides who wins: not the best of many rounds, which flatters whoever fluctuates most."""

SIGNIFICANT = 0.05
"""What is less probable than that is taken for more than chance."""
_DIGITS = 9  # means that are the same to so many digits differ by rounding only
_ROUND_NUMBERS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99)


@dataclass(frozen=True)
class RoundsTo:
    """How soon a group reached a target.

    Attributes:
        rounds: the first round of the runs that reached it, or the simulated time at its end; None
            if none did.
        reached: how many did.
        runs: how many there are.
        speed_up: how many times sooner than the baseline, over the seeds in which both reached
            it; None if there are none, and for the baseline itself.
    """

    rounds: Spread | None
    reached: int
    runs: int
    speed_up: float | None


@dataclass(frozen=True)
class Comparison:
    """Groups measured against each other, seed by seed."""

    results: Results

    @property
    def groups(self) -> list[Group]:
        """What is compared."""
        return self.results.groups

    @cached_property
    def cells(self) -> list[Cell]:
        """Groups that learn the same, together; there is one cell if all are rivals."""
        return cells_of(self.results)

    @property
    def rivals(self) -> bool:
        """Whether all groups learn the same, so that one of them can be better."""
        return len(self.cells) == 1

    @property
    def several_comparisons(self) -> bool:
        """Whether there are rivals, but not all are."""
        return not self.rivals and any(len(cell.results.groups) > 1 for cell in self.cells)

    @property
    def baseline(self) -> Group | None:
        """What the others are compared with; nothing if they learn something else."""
        place = self.results.baseline
        return None if place is None or not self.rivals else self.groups[place]

    @property
    def metric(self) -> str:
        """The measure that decides, in words."""
        return metric_words(self.results.metric)

    @property
    def metric_title(self) -> str:
        """The same, as a sentence or a title begins with it."""
        return self.metric[0].upper() + self.metric[1:]

    @cached_property
    def seeds(self) -> set[int]:
        """Seeds that all federations have."""
        found = [{s.seed for s in group.scores} for group, _ in self.ranked()]
        return set.intersection(*found) if found else set()

    @property
    def conclusive(self) -> bool:
        """Whether a difference can mean anything.

        Not between groups that learn different things, of a single seed, or of a single round.
        """
        rounds = [number for group in self.groups for number in group.rounds]
        several = len(self.seeds) > 1 and min(rounds) > 1
        return self.rivals and self.results.comparable and several

    def ordered(self) -> list[Group]:
        """Groups as tables have them: the best first, references and the untested last.

        Those with the same mean, and those that are no rivals, stay as they are.
        """
        if not self.rivals:
            return self.groups
        first = [group for group, _ in self.ranked()]
        others = [group for group in self.groups if group not in first]
        return first + sorted(others, key=lambda group: not group.is_reference)

    @cached_property
    def task_measures(self) -> tuple[Measure, ...]:
        """Further measures of the task that any run has."""
        scores = (scores for group in self.groups for scores in group.scores)
        return tuple(map(task_measure, dict.fromkeys(name for s in scores for name in s.measures)))

    def spread(self, group: Group, measure: Measure) -> Spread | None:
        """Mean and deviation over the seeds; None if it was not measured."""
        return Spread.of([v for s in group.scores if (v := measure.of(s)) is not None])

    def test(self, group: Group, measure: Measure) -> PairedTest | None:
        """Whether a group differs from the baseline, over the seeds that both have."""
        return self.between(group, self.baseline, measure)

    def between(self, group: Group, other: Group | None, measure: Measure) -> PairedTest | None:
        """Whether a group differs from another, over the seeds that both have."""
        pairs = _pairs(group, other, measure.of)
        return paired_test([a for a, _ in pairs], [b for _, b in pairs])

    def level_with(self, group: Group, measure: Measure) -> list[Group]:
        """Federations whose difference from a group may be chance, all of them looked at."""
        others = [other for other, _ in self.ranked() if other is not group]
        tests = [self.between(group, other, measure) for other in others]
        p_values = holm([1.0 if test is None else test.p_value for test in tests])
        return [o for o, p_value in zip(others, p_values, strict=True) if p_value >= SIGNIFICANT]

    def ratio(self, group: Group, measure: Measure) -> float | None:
        """The group's mean by the baseline's, over the seeds that both have."""
        pairs = _pairs(group, self.baseline, measure.of)
        below = sum(b for _, b in pairs)
        return sum(a for a, _ in pairs) / below if below else None

    @cached_property
    def targets(self) -> tuple[float, ...]:
        """Those asked for; else the highest round numbers that the baseline and the best reach."""
        if self.results.targets:
            return self.results.targets
        reached = [_reached(group) for group in self.groups if not group.is_reference]
        found = {max(reached, default=0), _reached(self.baseline) if self.baseline else 0}
        return tuple(sorted(found - {0}))

    @property
    def has_clock(self) -> bool:
        """Whether any run has a simulated clock, by speeds that were given."""
        return any(scores.clocks for group in self.groups for scores in group.scores)

    def rounds_to(self, group: Group, target: float) -> RoundsTo:
        """In how many rounds a group reached a target."""
        return self._soonness(group, lambda scores: scores.rounds_to(target))

    def time_to(self, group: Group, target: float) -> RoundsTo:
        """In how much simulated time a group reached a target."""
        return self._soonness(group, lambda scores: scores.time_to(target))

    def _soonness(self, group: Group, when: Callable[[Scores], float | None]) -> RoundsTo:
        reached = [number for s in group.scores if (number := when(s)) is not None]
        pairs = [] if group.is_reference else _pairs(group, self.baseline, when)
        own = sum(number for number, _ in pairs)
        speed_up = sum(number for _, number in pairs) / own if own else None
        return RoundsTo(Spread.of(reached), len(reached), len(group.scores), speed_up)

    def corrected(self, measure: Measure) -> dict[str, float]:
        """By label, the p-value of each group against the baseline, all of them looked at."""
        tests = {
            group.label: test.p_value
            for group in self.groups
            if not group.is_reference and (test := self.test(group, measure)) is not None
        }
        return dict(zip(tests, holm(list(tests.values())), strict=True))

    def ranked(self) -> list[tuple[Group, Spread]]:
        """Federations by the headline measure, the best first; the same means as they come."""
        found = [
            (group, spread)
            for group in self.groups
            if not group.is_reference and (spread := self.spread(group, HEADLINE)) is not None
        ]
        return sorted(found, key=lambda pair: -round(pair[1].mean, _DIGITS))


def _pairs(
    group: Group, other: Group | None, value: Callable[[Scores], float | None]
) -> Sequence[tuple[float, float]]:
    """A value of two groups in each of the seeds that both have; of one alone there is none."""
    if other is None or group is other:
        return []
    theirs = {scores.seed: value(scores) for scores in other.scores}
    found = [(value(scores), theirs.get(scores.seed)) for scores in group.scores]
    return [(a, b) for a, b in found if a is not None and b is not None]


def _reached(group: Group) -> float:
    """The highest round number that all runs of a group reach; 0 if there is none."""
    best = min((scores.best or 0 for scores in group.scores), default=0)
    return max((target for target in _ROUND_NUMBERS if target <= best), default=0)
