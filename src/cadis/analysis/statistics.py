"""Means, standard deviations and paired tests over seeds."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

_SAME = 1e-12  # smaller differences are rounding errors


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of some values.

    Attributes:
        mean: arithmetic mean.
        deviation: sample standard deviation; None for a single value.
        count: number of values.
    """

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def from_values(cls, values: Sequence[float]) -> "Spread | None":
        """Return the spread of some values; None if there are none.

        Example:
            >>> Spread.from_values([1.0, 3.0])
            Spread(mean=2.0, deviation=1.4142135623730951, count=2)
        """
        if not values:
            return None
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class PairedTest:
    """Result of a two-sided test on the differences of pairs.

    Attributes:
        difference: mean difference.
        low: lower end of its 95% confidence interval.
        high: upper end of its 95% confidence interval.
        p_value: probability of a mean difference at least as large if there is no true difference.
        count: number of pairs.
    """

    difference: float
    low: float
    high: float
    p_value: float
    count: int

    @property
    def name(self) -> str:
        """Name of the test: the sign test replaces the t-test if all differences are equal."""
        return "sign test" if self.low == self.high else "paired t-test"


def paired_test(first: Sequence[float], second: Sequence[float]) -> PairedTest | None:
    """Test whether the first value of each pair differs from the second.

    This is Student's paired t-test, or the sign test if all differences are equal.

    Args:
        first: first value of each pair.
        second: second value of each pair, in the same order.

    Returns:
        The result of the test; None for fewer than two pairs.

    Example:
        >>> paired_test([0.9, 0.8, 0.9], [0.7, 0.7, 0.6]).p_value < 0.1
        True
    """
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if len(differences) < 2:
        return None
    mean, count = fmean(differences), len(differences)
    if max(differences) - min(differences) < _SAME:  # the t statistic is undefined without variance
        # Small test sets often give equal differences. Only their common sign is evidence then.
        p_value = 2 * 0.5**count if abs(mean) >= _SAME else 1.0
        return PairedTest(mean, mean, mean, p_value, count)
    from scipy.stats import ttest_rel  # noqa: PLC0415 - slow to import

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss")  # for nearly equal differences
        result = ttest_rel(first, second)
    interval = result.confidence_interval(0.95)
    return PairedTest(mean, float(interval.low), float(interval.high), float(result.pvalue), count)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for multiple comparisons with Holm's step-down method.

    Example:
        >>> holm([0.01, 0.04])
        [0.02, 0.04]
    """
    values = np.asarray(p_values, float)
    order = np.argsort(values, kind="stable")
    factors = len(values) - np.arange(len(values))
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * values[order]))
    return [float(value) for value in corrected]
