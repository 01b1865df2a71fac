"""All measurements, or some of them, in one table: ``python -m benchmarks [WORD ...]``."""

import argparse
import sys

from rich.console import Console
from rich.table import Table

from benchmarks.isolated import measure_apart
from benchmarks.lines import LINES
from benchmarks.measure import Measured
from benchmarks.results import machine, results_now, save, versions


def main() -> None:
    """Measure, print, and keep the results if that is asked for."""
    arguments = _arguments()
    chosen = [line for line in LINES if _wanted(line, arguments.words)]
    if not chosen:
        sys.exit(f"No line has such a name; there are: {', '.join(LINES)}.")
    console = Console(width=120)
    rows, failed = list[Measured](), list[str]()
    for line in chosen:
        outcome = measure_apart(line)
        if outcome.skipped:
            console.print(f"{line}: skipped. {outcome.skipped}", markup=False)
        if outcome.failure:
            failed.append(line)
            console.print(f"{line}: FAILED\n{outcome.failure}", markup=False)
        for row in outcome.rows:
            console.print(f"{row.name}: {row.figure} ({row.goal})", markup=False)
        rows.extend(outcome.rows)
    console.print(_table(rows))
    if arguments.save and rows:
        console.print(f"Kept in {save(results_now(rows, arguments.note))}.")
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("words", nargs="*", help=f"parts of the names of lines: {', '.join(LINES)}")
    parser.add_argument("--save", action="store_true", help="keep the results")
    parser.add_argument("--note", default="", help="what to know of the results that are kept")
    return parser.parse_args()


def _wanted(line: str, words: list[str]) -> bool:
    return not words or any(word in line for word in words)


def _table(rows: list[Measured]) -> Table:
    """All rows, and whether their goals are reached."""
    told = ", ".join(f"{name} {number}" for name, number in versions().items())
    table = Table(title=f"{machine()}; {told}", title_justify="left")
    for column in ("measured", "value", "goal", "", "how"):
        table.add_column(column)
    for row in rows:
        table.add_row(row.name, row.figure, row.goal, "ok" if row.met else "missed", row.note)
    return table


if __name__ == "__main__":
    main()
