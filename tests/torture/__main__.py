"""The command that runs attacks: ``PYTHONPATH=tests python -m torture``."""

import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import click

from torture.campaign import ATTACKS, Campaign, OnOutcome, find_obstacle
from torture.outcomes import Attack, Outcome
from torture.table import Row, format_markdown, write_markdown


def make_reporter(campaign: Campaign, total: int) -> OnOutcome:
    """Return a function that prints each failure, and the progress every 20 trials."""
    name, counts = campaign.attack.name, {True: 0, False: 0}
    seed = f" --seed {campaign.seed}" if campaign.seed else ""

    def report(outcome: Outcome) -> None:
        finding, number = outcome.finding, outcome.number
        counts[finding.is_good] += 1
        if not finding.is_good:
            _print(
                f"{name} {number} FAILED, {finding.verdict}: {outcome.what}\n    {finding.reason}"
            )
            _print(f"    repeat: PYTHONPATH=tests python -m torture {name}{seed} --only {number}")
            _print(f"    folder: {campaign.folder(number)}")
        done = sum(counts.values())
        if done % 20 == 0 or done == total:
            _print(f"{name}: {done:,} of {total:,}, {counts[False]:,} failed")

    return report


@click.command()
@click.argument("names", nargs=-1, metavar="[ATTACK...]", type=click.Choice(list(ATTACKS)))
@click.option("--trials", type=click.IntRange(1), help="Number of trials of each attack.")
@click.option(
    "--only", type=click.IntRange(0), multiple=True, help="Run only the trial of this number."
)
@click.option("--quick", is_flag=True, help="Run only the trials that are part of the tests.")
@click.option("--seed", default=0, show_default=True, help="Seed of all random numbers.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Number of processes.")
@click.option(
    "--markdown", "page", type=click.Path(path_type=Path), help="Markdown page that gets the table."
)
def main(
    names: tuple[str, ...],
    trials: int | None,
    only: tuple[int, ...],
    quick: bool,
    seed: int,
    jobs: int,
    page: Path | None,
) -> None:
    """Run attacks, print the results, and exit with code 1 if a trial failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    root = Path(tempfile.mkdtemp(prefix="cadis-torture-"))
    rows = []
    for attack in (ATTACKS[name] for name in names or ATTACKS):
        numbers = list(only or (attack.quick if quick else range(trials or attack.trials)))
        rows.append(_run_attack(attack, numbers, seed, root, jobs))
    _print(format_markdown(rows, seed))
    if page is not None:
        write_markdown(page, format_markdown(rows, seed))
    if any(row.failed for row in rows):
        _print(f"The folders of the failed trials are in {root}.")
        sys.exit(1)
    shutil.rmtree(root, ignore_errors=True)


def _run_attack(attack: Attack, numbers: list[int], seed: int, root: Path, jobs: int) -> Row:
    if (reason := find_obstacle(attack)) is not None:
        _print(f"{attack.name}: skipped, since {reason}.")
        return Row(attack, [], 0, reason)
    campaign, started = Campaign(attack, seed, root), time.monotonic()
    _print(f"{attack.name}: {attack.title}")
    outcomes = campaign.run(numbers, jobs, make_reporter(campaign, len(numbers)))
    shutil.rmtree(campaign.base, ignore_errors=True)
    return Row(attack, outcomes, time.monotonic() - started)


def _print(text: str) -> None:
    print(text.encode("utf-8", "backslashreplace").decode(), flush=True)


if __name__ == "__main__":
    main()
