"""All attacks, or some: ``PYTHONPATH=tests python -m torture``."""

import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console

from torture.attacks import ATTACKS, obstacle
from torture.campaign import Campaign
from torture.outcomes import Attack, Outcome
from torture.table import Row, markdown, on_screen, write_markdown


class Progress:
    """A line a failure, and now and then how far it is."""

    def __init__(self, campaign: Campaign, total: int) -> None:
        self._campaign, self._total = campaign, total
        self._done = self._failed = 0
        self._shown = time.monotonic()

    def __call__(self, outcome: Outcome) -> None:
        """Hear of an outcome."""
        self._done += 1
        if not outcome.finding.good:
            self._failed += 1
            self._tell(outcome)
        if time.monotonic() > self._shown + 5 or self._done == self._total:
            self._shown = time.monotonic()
            name = self._campaign.attack.name
            _say(f"{name}: {self._done:,} of {self._total:,}, {self._failed:,} failed")

    def _tell(self, outcome: Outcome) -> None:
        name, number = self._campaign.attack.name, outcome.number
        _say(f"{name} {number} FAILED, {outcome.finding.verdict}: {outcome.what}")
        _say(f"    {outcome.finding.why}")
        seed = f" --seed {self._campaign.seed}" if self._campaign.seed else ""
        _say(f"    repeat: PYTHONPATH=tests python -m torture {name}{seed} --only {number}")
        _say(f"    folder: {self._campaign.folder(number)}")


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
    for name in names or ATTACKS:
        attack = ATTACKS[name]
        numbers = list(only or (attack.quick if quick else range(trials or attack.trials)))
        rows.append(_row(attack, numbers, seed, place, jobs))
    Console(width=140).print(on_screen(rows))
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
    outcomes = campaign.fight(numbers, jobs, Progress(campaign, len(numbers)))
    shutil.rmtree(campaign.base, ignore_errors=True)
    return Row(attack, outcomes, time.monotonic() - started)


def _say(text: str) -> None:
    print(text.encode("utf-8", "backslashreplace").decode(), flush=True)


if __name__ == "__main__":
    main()
