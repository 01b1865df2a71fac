"""Results in the terminal."""

from rich.console import Console

from cadis.analysis import Comparison, answer, details
from cadis.report.formats import fits_a_terminal, to_rich
from cadis.report.tables import notes, sheets
from cadis.report.terminal import tell


def show_tables(console: Console, comparison: Comparison) -> None:
    """The tables that fit, and what to know about them."""
    for sheet in sheets(comparison):
        if fits_a_terminal(sheet):
            console.print(to_rich(sheet))
    for sentence in notes(comparison):
        tell(console, sentence)


def show_answer(console: Console, comparison: Comparison) -> None:
    """Who wins."""
    console.print(answer(comparison), style="bold", markup=False, highlight=False)
    for sentence in details(comparison):
        tell(console, sentence)
