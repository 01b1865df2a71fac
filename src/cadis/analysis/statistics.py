"""Means, deviations and paired tests over seeds."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

_SAME = 1e-12  # numbers that differ by less are equal but for rounding


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
    """A test on the differences of pairs.

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
    """Test whether the first of each pair differs from the second; None for less than two pairs.

    Student's t-test; where all differences are the same, the sign test.
    """
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if len(differences) < 2:
        return None
    mean, count = fmean(differences), len(differences)
    if max(differences) - min(differences) < _SAME:  # where nothing varies there is no t
        # Few tested samples make equal differences likely: what is left is that all have one sign.
        p_value = 2 * 0.5**count if abs(mean) >= _SAME else 1.0
        return PairedTest(mean, mean, mean, p_value, count)
    # Only now: it takes a while to import.
    from scipy.stats import ttest_rel  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss")  # of differences that are all but equal
        found = ttest_rel(first, second)
    between = found.confidence_interval(0.95)
    return PairedTest(mean, float(between.low), float(between.high), float(found.pvalue), count)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p-values that hold although several are looked at."""
    values = np.asarray(p_values, float)
    order = np.argsort(values, kind="stable")
    factors = len(values) - np.arange(len(values))
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * values[order]))
    return [float(value) for value in corrected]
