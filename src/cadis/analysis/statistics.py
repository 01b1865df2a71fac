"""Means, deviations and paired tests over seeds."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Spread:
    """Some values in two numbers.

    Attributes:
        mean: their mean.
        deviation: their sample standard deviation, None for a single one.
        count: how many there are.
    """

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """Mean, deviation and number of some values; None of none."""
        if not values:
            return None
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class PairedTest:
    """Student's t-test on the differences of pairs.

    Attributes:
        difference: their mean.
        low: lower end of the 95% confidence interval of the mean.
        high: upper end of it.
        p_value: how probable a mean that far from 0 is, if there is no difference (two-sided).
        count: number of pairs.
    """

    difference: float
    low: float
    high: float
    p_value: float
    count: int


def paired_test(first: Sequence[float], second: Sequence[float]) -> PairedTest | None:
    """Test whether the first of each pair differs from the second; None for less than two pairs."""
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if len(differences) < 2:
        return None
    mean, count = fmean(differences), len(differences)
    if len(set(differences)) == 1:  # where nothing varies there is no t
        return PairedTest(mean, mean, mean, 0.0 if mean else 1.0, count)
    # Only now: it takes a while to import.
    from scipy.stats import ttest_rel  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss")  # of differences that are all but equal
        found = ttest_rel(first, second)
    between = found.confidence_interval(0.95)
    return PairedTest(mean, float(between.low), float(between.high), float(found.pvalue), count)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p-values that hold although several are looked at."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected
