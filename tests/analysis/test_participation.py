"""Clients that no longer take part."""

from dataclasses import replace
from pathlib import Path

import pytest

from cadis.algorithm.methods import FedAvg
from cadis.analysis import find_departures
from cadis.server import RoundRecord, Seconds
from fabricated import change_clusters, read_run


def make_history(*rounds: str) -> list[RoundRecord]:
    """Return records whose participants are the letters of each text."""
    empty = RoundRecord(1, None, None, [], [], [], [], Seconds(0, 0, 0, 0))
    return [replace(empty, round=n, participants=list(who)) for n, who in enumerate(rounds, 1)]


@pytest.mark.parametrize(
    ("rounds", "departures"),
    [
        # The mean gap is 2 clients * 9 rounds / 12 participations = 1.5: b is absent for 6 > 4.5.
        (["ab"] * 3 + ["a"] * 6, {"b": 3}),
        # 2 * 7 / 10 = 1.4: b is absent for 4 < 4.2 rounds.
        (["ab"] * 3 + ["a"] * 4, {}),
        # b was absent for 2 rounds before, between its rounds 1 and 4: it is absent for 9 = 3 * 3.
        (["ab", "a", "a", "ab"] + ["a"] * 9, {}),
        (["ab", "a", "a", "ab"] + ["a"] * 10, {"b": 4}),
        # Rounds before the first participation are not an absence.
        (["a"] * 20 + ["ab"] * 2 + ["a"] * 7, {"b": 22}),
        # b took part twice in succession by chance: 4 clients * 6 rounds / 6 = 4, and 4 < 12.
        (["b", "b", "a", "c", "d", "a"], {}),
    ],
)
def test_long_absence_at_the_end_is_a_departure(
    rounds: list[str], departures: dict[str, int]
) -> None:
    assert find_departures(make_history(*rounds)) == departures


def test_cluster_that_leaves_is_found(tmp_path: Path) -> None:
    run_data = read_run(tmp_path, FedAvg(), rounds=40, change_record=change_clusters)
    assert find_departures(run_data.history) == dict.fromkeys([6, 7, 8, 9], 12)
    assert find_departures(run_data.history[:12]) == {}
