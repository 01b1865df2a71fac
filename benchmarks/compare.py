"""Compare two results: ``python -m benchmarks.compare [OLD.json NEW.json]``."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Measurement
from benchmarks.results import Results, find_newest, read
from cadis.errors import CadisError

NOISE = 5.0
"""Change in percent that counts as noise, even on an idle machine."""


@dataclass(frozen=True)
class Change:
    """A measurement in two results; None where it is missing."""

    old: Measurement | None
    new: Measurement | None

    @property
    def row(self) -> Measurement:
        """Return the newer of the two."""
        row = self.new or self.old
        assert row is not None
        return row

    @property
    def percent(self) -> float | None:
        """Return the change in percent; None if it is not defined."""
        if self.old is None or self.new is None or self.old.value <= 0:
            return None
        return 100 * (self.new.value / self.old.value - 1)

    @property
    def verdict(self) -> str:
        """Return "better", "worse" or "same", or why there is no comparison."""
        if self.old is None:
            return "new"
        if self.new is None:
            return "not measured"
        if self.percent is None or abs(self.percent) <= NOISE:
            return "same"
        return "better" if (self.percent > 0) == self.new.at_least else "worse"


def changes(old: Results, new: Results) -> list[Change]:
    """Return all changes in the order of the new results; removed rows come last."""
    before = {row.name: row for row in old.rows}
    after = {row.name: row for row in new.rows}
    names = [*after, *(name for name in before if name not in after)]
    return [Change(before.get(name), after.get(name)) for name in names]


def make_comparison_table(old: Results, new: Results) -> Table:
    """Return a table of all changes."""
    table = Table(title=f"{_title(old)} -> {_title(new)}", title_justify="left")
    for column in ("measured", "old", "new", "change", "", "goal", ""):
        table.add_column(column)
    for change in changes(old, new):
        before, after = (row.figure if row else "" for row in (change.old, change.new))
        percent = "" if change.percent is None else f"{change.percent:+.1f}%"
        goal_text = "" if change.new is None else "ok" if change.new.met else "missed"
        row = change.row
        table.add_row(row.name, before, after, percent, change.verdict, row.goal, goal_text)
    return table


def _title(results: Results) -> str:
    return f"{results.date} {results.commit}{' with changes' if results.changed else ''}"


def main(arguments: Sequence[str]) -> None:
    """Read two results and print the changes."""
    try:
        if len(arguments) not in (0, 2):
            raise CadisError("Give two files, the older one first, or none for the two newest.")
        paths = [Path(argument) for argument in arguments] or find_newest()
        old, new = (read(path) for path in paths)
    except CadisError as error:
        sys.exit(str(error))
    console = Console(width=120)
    console.print(make_comparison_table(old, new))
    console.print(f"Noise of a few percent is normal: up to {NOISE:g}% counts as the same.")
    if old.machine != new.machine or old.versions != new.versions:
        console.print("Machines or versions differ; compare only the ratios.")
    for results in (old, new):
        if results.note:
            console.print(f"{results.date}: {results.note}")


if __name__ == "__main__":
    main(sys.argv[1:])
