from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cadis.analysis import Spread, holm, paired_test


def test_spread_by_hand() -> None:
    spread = Spread.of([1.0, 2.0, 6.0])
    assert spread is not None
    assert spread.mean == 3
    assert spread.deviation == pytest.approx(sqrt((4 + 1 + 9) / 2))
    assert spread.count == 3
    assert Spread.of([4.0]) == Spread(4.0, None, 1)
    assert Spread.of([]) is None


def test_paired_test_by_hand() -> None:
    test = paired_test([2.0, 3.0, 7.0], [1.0, 1.0, 4.0])  # differences 1, 2, 3
    assert test is not None
    assert test.difference == 2
    error = 1 / sqrt(3)
    assert test.low == pytest.approx(2 - 4.302653 * error)  # Student, 2 degrees of freedom, 97.5%
    assert test.high == pytest.approx(2 + 4.302653 * error)
    assert test.count == 3
    t = 2 / error
    assert test.p_value == pytest.approx(1 - t / sqrt(t**2 + 2))  # the closed form for 2 degrees


@given(
    st.lists(st.tuples(st.floats(-10, 10), st.floats(-10, 10)), min_size=2, max_size=8).filter(
        lambda pairs: len({round(a - b, 3) for a, b in pairs}) > 1
    )
)
def test_paired_test_is_scipys(pairs: list[tuple[float, float]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    test, theirs = paired_test(first, second), stats.ttest_rel(first, second)
    assert test is not None
    assert test.p_value == pytest.approx(theirs.pvalue, abs=1e-9)
    interval = theirs.confidence_interval(0.95)
    assert (test.low, test.high) == pytest.approx((interval.low, interval.high))


def test_paired_test_without_any_spread() -> None:
    alike = paired_test([1.0, 2.0], [1.0, 2.0])
    assert alike is not None
    assert alike.p_value == 1
    always = paired_test([1.5, 2.5], [1.0, 2.0])
    assert always is not None
    assert always.p_value == 0
    assert paired_test([1.0], [2.0]) is None
    assert paired_test([], []) is None


def test_holm_by_hand() -> None:
    # sorted 0.01, 0.02, 0.03: 3 * 0.01, 2 * 0.02, and the last is not below the one before
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.6, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []
