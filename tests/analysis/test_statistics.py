from dataclasses import astuple
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cadis.analysis import PairedTest, Spread, holm, paired_test


def test_spread_by_hand() -> None:
    spread = Spread.from_values([1.0, 2.0, 6.0])
    assert spread is not None
    assert spread.mean == 3
    assert spread.deviation == pytest.approx(sqrt((4 + 1 + 9) / 2))
    assert spread.count == 3
    assert Spread.from_values([4.0]) == Spread(4.0, None, 1)
    assert Spread.from_values([]) is None


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


OLD = [
    (
        [0.595, 0.718], [0.603, 0.668],
        0.020999999999999963, -0.3474799373490658, 0.3894799373490657, 0.601003076898026,
    ),
    (
        [0.75, 0.526, 0.505], [0.718, 0.526, 0.475],
        0.020666666666666684, -0.023863421755980493, 0.06519675508931386, 0.18392790393638261,
    ),
    (
        [0.688, 0.835, 0.691, 0.756, 0.56], [0.57, 0.855, 0.716, 0.785, 0.547],
        0.011399999999999988, -0.06541576176657656, 0.08821576176657654, 0.7014318042478573,
    ),
]  # fmt: skip
"""Accuracies of two methods; difference, interval and p-value of an earlier implementation."""


@pytest.mark.parametrize(("first", "second", "difference", "low", "high", "p_value"), OLD)
def test_paired_test_equals_an_earlier_implementation(
    first: list[float],
    second: list[float],
    difference: float,
    low: float,
    high: float,
    p_value: float,
) -> None:
    expected = PairedTest(difference, low, high, p_value, len(first))
    found = paired_test(first, second)
    assert found is not None
    assert astuple(found) == pytest.approx(astuple(expected), rel=1e-12)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=8))
def test_swapping_the_samples_changes_the_sign_only(pairs: list[tuple[float, float]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    one, other = paired_test(first, second), paired_test(second, first)
    assert one is not None
    assert other is not None
    assert one.low <= one.difference <= one.high
    assert 0 <= one.p_value <= 1
    swapped = (-other.difference, -other.high, -other.low, other.p_value, len(pairs))
    assert astuple(one) == pytest.approx(swapped)


def test_paired_test_without_variance_is_a_sign_test() -> None:
    equal = paired_test([1.0, 2.0], [1.0, 2.0])
    assert equal is not None
    assert equal.p_value == 1
    shifted = paired_test([1.5, 2.5], [1.0, 2.0])
    assert shifted is not None
    assert shifted.name == "sign test"
    assert shifted.p_value == 0.5  # both signs are equal: 2 * 1/2 * 1/2
    rounded = paired_test([0.3, 0.6, 0.1], [0.1, 0.4, -0.1])  # 0.2 up to rounding
    assert rounded is not None
    assert rounded.p_value == 0.25
    assert paired_test([1.0], [2.0]) is None
    assert paired_test([], []) is None


def test_holm_by_hand() -> None:
    # sorted 0.01, 0.02, 0.03: 3 * 0.01, 2 * 0.02, and the last is not below the one before
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.6, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []
