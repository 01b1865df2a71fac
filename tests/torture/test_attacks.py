"""A few trials of each attack; ``make torture`` runs all of them."""

from pathlib import Path

import pytest

from torture.campaign import ATTACKS, Campaign, find_obstacle
from torture.outcomes import Outcome


def describe(outcome: Outcome) -> str:
    what, finding = f"trial {outcome.number}, {outcome.what}", outcome.finding
    return f"{what}: {finding.verdict}, {finding.reason}".encode(
        "utf-8", "backslashreplace"
    ).decode()


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_causes_no_failure(name: str, tmp_path: Path) -> None:
    attack = ATTACKS[name]
    if reason := find_obstacle(attack):
        pytest.skip(reason)
    outcomes = Campaign(attack, 0, tmp_path).run(attack.quick, 1, lambda _: None)
    assert [outcome.number for outcome in outcomes] == list(attack.quick)
    failures = [describe(outcome) for outcome in outcomes if not outcome.finding.is_good]
    assert not failures, "\n".join(failures)
