"""How a run that was called from Python shows its progress: on a terminal or in a notebook."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.report.terminal import run_progress
from cadis.server import OnRound, RoundResult


@contextmanager
def shown_progress(
    progress: bool | None, rounds: int, metric: str
) -> Iterator[tuple[OnRound, Callbacks]]:
    """Show progress, and yield the callbacks of rounds and of work within rounds.

    Args:
        progress: whether to show anything; None shows it on a terminal and in a notebook.
        rounds: how many there will be.
        metric: the measure that decides, which is shown.
    """
    console = Console(stderr=True)
    if not is_shown(progress, console):
        yield ignore_round, NO_CALLBACKS
        return
    with run_progress(console, rounds, metric) as shown:
        yield shown


def is_shown(progress: bool | None, console: Console) -> bool:
    """Return whether to show progress: as asked, else on a terminal and in a notebook."""
    looked_at = console.is_jupyter or (sys.stderr is not None and sys.stderr.isatty())
    return looked_at if progress is None else progress


def ignore_round(_result: RoundResult) -> None:
    """Do nothing with the result of a round."""
