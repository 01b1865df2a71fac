"""Where the time went, for the page."""

from statistics import fmean
from typing import Any

from cadis.analysis import MEASURE, Comparison, Group


def spent(comparison: Comparison) -> dict[str, Any]:
    """Seconds a round of each group, and ratios to the baseline."""
    return {
        "methods": [
            {"method": place, **_seconds(group), **_ratios(comparison, group)}
            for place, group in enumerate(comparison.groups)
        ]
    }


def _seconds(group: Group) -> dict[str, float]:
    records = [record.seconds for run_data in group.runs for record in run_data.history]
    return {
        "train": round(fmean(seconds.train for seconds in records), 6),
        "aggregate": round(fmean(seconds.aggregate for seconds in records), 6),
        "evaluate": round(fmean(seconds.evaluate for seconds in records), 6),
        "total": round(fmean(seconds.total for seconds in records), 6),
    }


def _ratios(comparison: Comparison, group: Group) -> dict[str, float | None]:
    speed = comparison.spread(group, MEASURE["samples_per_second"])
    return {
        "samples_per_second": None if speed is None else round(speed.mean, 1),
        "server_ratio": comparison.ratio(group, MEASURE["server_seconds"]),
        "client_ratio": comparison.ratio(group, MEASURE["samples_per_second"]),
    }
