"""All attacks, or some: ``PYTHONPATH=tests python -m torture``."""

import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import click

from torture.campaign import ATTACKS, Campaign, OnOutcome, obstacle
from torture.outcomes import Attack, Outcome
from torture.table import Row, markdown, write_markdown


def telling(campaign: Campaign, total: int) -> OnOutcome:
    """Says a few lines of each failure, and now and then how far it is."""
    name, counted = campaign.attack.name, {True: 0, False: 0}
    seed = f" --seed {campaign.seed}" if campaign.seed else ""

    def tell(outcome: Outcome) -> None:
        finding, number = outcome.finding, outcome.number
        counted[finding.good] += 1
        if not finding.good:
            _say(f"{name} {number} FAILED, {finding.verdict}: {outcome.what}\n    {finding.why}")
            _say(f"    repeat: PYTHONPATH=tests python -m torture {name}{seed} --only {number}")
            _say(f"    folder: {campaign.folder(number)}")
        done = sum(counted.values())
        if done % 20 == 0 or done == total:
            _say(f"{name}: {done:,} of {total:,}, {counted[False]:,} failed")

    return tell


@click.command()
@click.argument("names", nargs=-1, metavar="[ATTACK...]", type=click.Choice(list(ATTACKS)))
@click.option("--trials", type=click.IntRange(1), help="Trials of each attack.")
@click.option("--only", type=click.IntRange(0), multiple=True, help="Only trials of this number.")
@click.option("--quick", is_flag=True, help="Only the trials that are among the tests.")
@click.option("--seed", default=0, show_default=True, help="Of everything random.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Processes.")
@click.option("--markdown", "page", type=click.Path(path_type=Path), help="Page for the table.")
def main(
    names: tuple[str, ...],
    trials: int | None,
    only: tuple[int, ...],
    quick: bool,
    seed: int,
    jobs: int,
    page: Path | None,
) -> None:
    """Attack, tell what came of it, and end with 1 if anything failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    place = Path(tempfile.mkdtemp(prefix="cadis-torture-"))
    rows = []
    for attack in (ATTACKS[name] for name in names or ATTACKS):
        numbers = list(only or (attack.quick if quick else range(trials or attack.trials)))
        rows.append(_row(attack, numbers, seed, place, jobs))
    _say(markdown(rows, seed))
    if page is not None:
        write_markdown(page, markdown(rows, seed))
    if any(row.failed for row in rows):
        _say(f"The folders of what failed are in {place}.")
        sys.exit(1)
    shutil.rmtree(place, ignore_errors=True)


def _row(attack: Attack, numbers: list[int], seed: int, place: Path, jobs: int) -> Row:
    if (sentence := obstacle(attack)) is not None:
        _say(f"{attack.name}: skipped, as {sentence}.")
        return Row(attack, [], 0, sentence)
    campaign, started = Campaign(attack, seed, place), time.monotonic()
    _say(f"{attack.name}: {attack.title}")
    outcomes = campaign.fight(numbers, jobs, telling(campaign, len(numbers)))
    shutil.rmtree(campaign.base, ignore_errors=True)
    return Row(attack, outcomes, time.monotonic() - started)


def _say(text: str) -> None:
    print(text.encode("utf-8", "backslashreplace").decode(), flush=True)


if __name__ == "__main__":
    main()
