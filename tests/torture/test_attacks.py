"""A few trials of each attack; ``make torture`` makes them all."""

from pathlib import Path

import pytest

from torture.campaign import ATTACKS, Campaign, obstacle
from torture.outcomes import Outcome


def told(outcome: Outcome) -> str:
    what, found = f"trial {outcome.number}, {outcome.what}", outcome.finding
    return f"{what}: {found.verdict}, {found.why}".encode("utf-8", "backslashreplace").decode()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_does_no_harm(name: str, tmp_path: Path) -> None:
    attack = ATTACKS[name]
    if sentence := obstacle(attack):
        pytest.skip(sentence)
    outcomes = Campaign(attack, 0, tmp_path).fight(attack.quick, 1, lambda _: None)
    assert [outcome.number for outcome in outcomes] == list(attack.quick)
    failures = [told(outcome) for outcome in outcomes if not outcome.finding.good]
    assert not failures, "\n".join(failures)
