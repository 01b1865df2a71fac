"""Accuracy over simulated time, of runs whose clients were given speeds."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cadis.analysis.run_data import RunData

_POINTS = 240
"""Times at which runs are looked at: seeds have clocks of their own, which never agree."""
_FAR_APART = 5
"""Runs that end at times so many times apart are seen on a logarithmic axis only."""


def clocks_of(run_data: RunData) -> list[float]:
    """The simulated time at the end of each round; empty where clients were given no speeds."""
    found = [record.clock for record in run_data.history]
    known = [clock for clock in found if clock is not None]
    return known if run_data.options.get("speeds") and len(known) == len(found) else []


def time_axis(runs: Sequence[RunData]) -> tuple[NDArray[np.float64], bool]:
    """Times from the first end of a round to the last, and whether they are spaced by ratios."""
    clocks = [clocks for run_data in runs if (clocks := clocks_of(run_data))]
    first, ends = min(own[0] for own in clocks), [own[-1] for own in clocks]
    far_apart = max(ends) > _FAR_APART * min(ends) and first > 0
    spaced = np.geomspace if far_apart else np.linspace
    return spaced(first, max(ends), _POINTS), far_apart


def at_times(
    values: NDArray[np.float64], clocks: Sequence[float], times: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The value of the last tested round that had ended at each time, NaN before and beyond.

    Args:
        values: one a round, NaN where nobody tested.
        clocks: when each round ended.
        times: when to look.
    """
    tested = ~np.isnan(values)
    if not tested.any():
        return np.full(len(times), np.nan)
    ended, known = np.array(clocks)[tested], values[tested]
    places = np.searchsorted(ended, times, side="right") - 1
    inside = (places >= 0) & (times <= clocks[-1])
    return np.where(inside, known[places], np.nan)
