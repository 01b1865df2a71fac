from dataclasses import replace
from itertools import count
from math import nan
from pathlib import Path

import numpy as np
import pytest

from cadis.algorithm.methods import FedAvg
from cadis.analysis import RunData, at_times, clocks_of, time_axis
from cadis.server import RoundRecord
from fabricated import write_run


def run_data(path: Path, seconds: float | None, speeds: str = "1:9") -> RunData:
    """A run of 12 rounds that last so long."""
    numbers = count(1)

    def further(record: RoundRecord) -> RoundRecord:
        return replace(record, clock=None if seconds is None else seconds * next(numbers))

    return RunData.read(write_run(path, FedAvg(), further=further, speeds=speeds))


def test_the_value_at_a_time_is_that_of_the_last_tested_round() -> None:
    values, clocks = np.array([0.1, nan, 0.3, 0.4]), [2.0, 3.0, 3.0, 8.0]
    times = np.array([1.0, 2.0, 2.5, 3.0, 7.9, 8.0, 8.1])
    found = at_times(values, clocks, times)
    np.testing.assert_array_equal(found, [nan, 0.1, 0.1, 0.3, 0.3, 0.4, nan])
    assert np.isnan(at_times(np.array([nan]), [1.0], times)).all()


def test_only_runs_with_speeds_and_a_whole_clock_have_times(tmp_path: Path) -> None:
    assert clocks_of(run_data(tmp_path / "timed", 0.5))[:2] == [0.5, 1.0]
    assert clocks_of(run_data(tmp_path / "equal", 0.5, speeds="")) == []
    assert clocks_of(run_data(tmp_path / "untimed", None)) == []


@pytest.mark.parametrize(("slow", "far_apart"), [(2.0, False), (40.0, True)])
def test_the_axis_is_logarithmic_where_runs_end_far_apart(
    slow: float, far_apart: bool, tmp_path: Path
) -> None:
    runs = [run_data(tmp_path / "fast", 1.0), run_data(tmp_path / "slow", slow)]
    times, logarithmic = time_axis(runs)
    assert logarithmic is far_apart
    assert (times[0], times[-1]) == (pytest.approx(1.0), pytest.approx(12 * slow))
    steps = np.diff(np.log(times) if far_apart else times)
    assert steps.max() == pytest.approx(steps.min())
