"""Who is better, by how much, and whether that may be chance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from cadis.analysis.results import Group, Results
from cadis.analysis.scores import MEASURE, Measure, Scores, task_measure
from cadis.analysis.statistics import PairedTest, Spread, holm, paired_test

HEADLINE = MEASURE["ten_rounds"]
"""What decides who wins: not the best of many rounds, which flatters whoever fluctuates most."""

_ROUND_NUMBERS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99)


@dataclass(frozen=True)
class RoundsTo:
    """How soon a group reached an accuracy.

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

    @property
    def baseline(self) -> Group | None:
        """What the others are compared with."""
        place = self.results.baseline
        return None if place is None else self.groups[place]

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
        pairs = self._pairs(group, measure)
        return paired_test([a for a, _ in pairs], [b for _, b in pairs])

    def ratio(self, group: Group, measure: Measure) -> float | None:
        """The group's mean by the baseline's, over the seeds that both have."""
        pairs = self._pairs(group, measure)
        below = sum(b for _, b in pairs)
        return sum(a for a, _ in pairs) / below if below else None

    @cached_property
    def targets(self) -> tuple[float, ...]:
        """Those asked for; else the highest round numbers that the baseline and the best reach."""
        if self.results.targets:
            return self.results.targets
        found = []
        for group in [self.baseline] if self.baseline else []:
            found += _reached(group)
        found += max((_reached(g) for g in self.groups if not g.is_reference), default=[])
        return tuple(sorted(set(found)))

    @property
    def has_clock(self) -> bool:
        """Whether any run has a simulated clock, by speeds that were given."""
        return any(scores.clocks for group in self.groups for scores in group.scores)

    def rounds_to(self, group: Group, target: float) -> RoundsTo:
        """In how many rounds a group reached an accuracy."""
        return self._soonness(group, lambda scores: scores.rounds_to(target))

    def time_to(self, group: Group, target: float) -> RoundsTo:
        """In how much simulated time a group reached an accuracy."""
        return self._soonness(group, lambda scores: scores.time_to(target))

    def _soonness(self, group: Group, when: Callable[[Scores], float | None]) -> RoundsTo:
        rounds = {scores.seed: when(scores) for scores in group.scores}
        reached = [number for number in rounds.values() if number is not None]
        speed_up = None
        compared = group is not self.baseline and not group.is_reference
        if self.baseline is not None and compared:
            theirs = {scores.seed: when(scores) for scores in self.baseline.scores}
            both = [s for s in rounds if rounds[s] is not None and theirs.get(s) is not None]
            own = sum(rounds[seed] or 0 for seed in both)
            speed_up = sum(theirs[seed] or 0 for seed in both) / own if own else None
        return RoundsTo(Spread.of(reached), len(reached), len(rounds), speed_up)

    def corrected(self, measure: Measure) -> dict[str, float]:
        """By label, the p-value of each group against the baseline, all of them looked at."""
        tests = {
            group.label: test.p_value
            for group in self.groups
            if not group.is_reference and (test := self.test(group, measure)) is not None
        }
        return dict(zip(tests, holm(list(tests.values())), strict=True))

    def ranked(self) -> list[tuple[Group, Spread]]:
        """Federations by the headline measure, the best first."""
        found = [
            (group, spread)
            for group in self.groups
            if not group.is_reference and (spread := self.spread(group, HEADLINE)) is not None
        ]
        return sorted(found, key=lambda pair: -pair[1].mean)

    def _pairs(self, group: Group, measure: Measure) -> Sequence[tuple[float, float]]:
        if self.baseline is None or group is self.baseline:
            return []
        theirs = {scores.seed: measure.of(scores) for scores in self.baseline.scores}
        found = [(measure.of(scores), theirs.get(scores.seed)) for scores in group.scores]
        return [(a, b) for a, b in found if a is not None and b is not None]


def _reached(group: Group) -> list[float]:
    """The highest round number that all runs of a group reach, if there is one."""
    best = min((scores.best or 0 for scores in group.scores), default=0)
    return [target for target in _ROUND_NUMBERS if target <= best][-1:]
