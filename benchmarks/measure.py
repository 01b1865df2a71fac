"""Measurements and ratios; alternating both sides makes ratios robust to load."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


class SkippedError(Exception):
    """Raised by a line that cannot be measured on this machine; the message says why."""


@dataclass(frozen=True)
class Measurement:
    """One row of the table.

    Attributes:
        name: what was measured.
        value: the measured value.
        limit: the goal, an upper limit or a lower one.
        unit: the unit of the value; empty for a ratio.
        note: details of the measurement.
        at_least: whether the limit is a lower limit, since more is better.
    """

    name: str
    value: float
    limit: float
    unit: str = ""
    note: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Return whether the goal is met."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def figure(self) -> str:
        """Return the value with its unit, to three digits."""
        return f"{self.value:.3g} {self.unit}".rstrip()

    @property
    def goal(self) -> str:
        """Return the limit as text."""
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g} {self.unit}".rstrip()


def seconds(action: Callable[[], object]) -> float:
    """Return the seconds that the action takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def ratio(action: Callable[[], object], reference: Callable[[], object], times: int) -> float:
    """Return the median ratio of the seconds of two actions, alternating."""
    pairs = [(seconds(action), seconds(reference)) for _ in range(times + 1)][1:]
    return median(one / other for one, other in pairs)
