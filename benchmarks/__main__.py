"""Run all benchmarks, or some of them, and print one table: ``python -m benchmarks [CASE ...]``."""

import argparse
import sys

from rich.console import Console
from rich.table import Table

from benchmarks.isolated import measure_in_process
from benchmarks.lines import LINES
from benchmarks.measure import Measurement
from benchmarks.results import collect_results, collect_versions, describe_machine, save


def main() -> None:
    """Run the benchmarks, print the results, and save them with ``--save``."""
    arguments = _parse_arguments()
    lines = [line for line in LINES if _matches(line, arguments.cases)]
    if not lines:
        sys.exit(f"There is no such benchmark; there are: {', '.join(LINES)}.")
    console = Console(width=120)
    rows, failed = list[Measurement](), list[str]()
    for line in lines:
        outcome = measure_in_process(line)
        if outcome.skipped:
            console.print(f"{line}: skipped. {outcome.skipped}", markup=False)
        if outcome.failure:
            failed.append(line)
            console.print(f"{line}: FAILED\n{outcome.failure}", markup=False)
        for row in outcome.rows:
            console.print(f"{row.name}: {row.figure} ({row.goal})", markup=False)
        rows.extend(outcome.rows)
    console.print(_make_table(rows))
    if arguments.save and rows:
        console.print(f"Saved to {save(collect_results(rows, arguments.note))}.")
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}.")


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"parts of these names: {', '.join(LINES)}")
    parser.add_argument("--save", action="store_true", help="save the results")
    parser.add_argument("--note", default="", help="note to store with the results")
    return parser.parse_args()


def _matches(line: str, cases: list[str]) -> bool:
    return not cases or any(case in line for case in cases)


def _make_table(rows: list[Measurement]) -> Table:
    """Return a table of all measurements and their goals."""
    packages = ", ".join(f"{name} {number}" for name, number in collect_versions().items())
    table = Table(title=f"{describe_machine()}; {packages}", title_justify="left")
    for column in ("measured", "value", "goal", "", "how"):
        table.add_column(column)
    for row in rows:
        table.add_row(row.name, row.figure, row.goal, "ok" if row.met else "missed", row.note)
    return table


if __name__ == "__main__":
    main()
