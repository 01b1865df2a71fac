"""Ratios that hold on a noisy machine: both sides measured in turns."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Measured:
    """One row of the table.

    Attributes:
        name: what was measured.
        value: the figure.
        limit: what it may be at most.
        unit: of the figure, empty for a ratio.
        note: how it came about.
    """

    name: str
    value: float
    limit: float
    unit: str = ""
    note: str = ""


def seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def ratio(action: Callable[[], object], reference: Callable[[], object], times: int) -> float:
    """Seconds of one / seconds of the other: the median of pairs taken one after the other."""
    pairs = [(seconds(action), seconds(reference)) for _ in range(times + 1)][1:]
    return median(one / other for one, other in pairs)
