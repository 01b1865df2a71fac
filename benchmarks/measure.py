"""Ratios that hold on a noisy machine: both sides measured in turns."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


class SkippedError(Exception):
    """Raised by a line that cannot be measured here, with a sentence that says why."""


@dataclass(frozen=True)
class Measured:
    """One row of the table.

    Attributes:
        name: what was measured.
        value: the figure.
        limit: the goal: what it may be at most, or must be at least.
        unit: of the figure, empty for a ratio.
        note: how it came about.
        at_least: whether more is better, and the goal is what it must be at least.
    """

    name: str
    value: float
    limit: float
    unit: str = ""
    note: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def figure(self) -> str:
        """The value with its unit, to three digits."""
        return f"{self.value:.3g} {self.unit}".rstrip()

    @property
    def goal(self) -> str:
        """The limit in words."""
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g} {self.unit}".rstrip()


def seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def ratio(action: Callable[[], object], reference: Callable[[], object], times: int) -> float:
    """Seconds of one / seconds of the other: the median of pairs taken one after the other."""
    pairs = [(seconds(action), seconds(reference)) for _ in range(times + 1)][1:]
    return median(one / other for one, other in pairs)
