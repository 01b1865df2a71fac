"""What changed between two results: ``python -m benchmarks.compare [OLD.json NEW.json]``."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Measured
from benchmarks.results import Results, newest, read
from cadis.errors import CadisError

NOISE = 5.0
"""Percent that a figure may change by itself, even of a quiet machine."""


@dataclass(frozen=True)
class Change:
    """A row in two results; either may be missing in one of them."""

    old: Measured | None
    new: Measured | None

    @property
    def row(self) -> Measured:
        """The newer of the two."""
        row = self.new or self.old
        assert row is not None
        return row

    @property
    def percent(self) -> float | None:
        """By how much the new value is above the old one; None if there is no telling."""
        if self.old is None or self.new is None or self.old.value <= 0:
            return None
        return 100 * (self.new.value / self.old.value - 1)

    @property
    def verdict(self) -> str:
        """In a word or two; knows which direction is the good one."""
        if self.old is None:
            return "new"
        if self.new is None:
            return "not measured"
        if self.percent is None or abs(self.percent) <= NOISE:
            return "same"
        return "better" if (self.percent > 0) == self.new.at_least else "worse"


def changes(old: Results, new: Results) -> list[Change]:
    """Row by row, in the order of the new results; what is gone comes last."""
    before = {row.name: row for row in old.rows}
    after = {row.name: row for row in new.rows}
    names = [*after, *(name for name in before if name not in after)]
    return [Change(before.get(name), after.get(name)) for name in names]


def table_of(old: Results, new: Results) -> Table:
    """All changes, to print."""
    table = Table(title=f"{_title(old)} -> {_title(new)}", title_justify="left")
    for column in ("measured", "old", "new", "change", "", "goal", ""):
        table.add_column(column)
    for change in changes(old, new):
        before, after = (row.figure if row else "" for row in (change.old, change.new))
        percent = "" if change.percent is None else f"{change.percent:+.1f}%"
        reached = "" if change.new is None else "ok" if change.new.met else "missed"
        row = change.row
        table.add_row(row.name, before, after, percent, change.verdict, row.goal, reached)
    return table


def _title(results: Results) -> str:
    return f"{results.date} {results.commit}{' with changes' if results.changed else ''}"


def main(arguments: Sequence[str]) -> None:
    """Read two results and print what changed."""
    try:
        if len(arguments) not in (0, 2):
            raise CadisError("Give two files, the older one first, or none for the two newest.")
        paths = [Path(argument) for argument in arguments] or newest()
        old, new = (read(path) for path in paths)
    except CadisError as error:
        sys.exit(str(error))
    console = Console(width=120)
    console.print(table_of(old, new))
    console.print(f"Noise of a few percent is normal: up to {NOISE:g}% counts as the same.")
    if old.machine != new.machine or old.versions != new.versions:
        console.print("They are of different machines or versions; only the ratios compare.")
    for results in (old, new):
        if results.note:
            console.print(f"{results.date}: {results.note}")


if __name__ == "__main__":
    main(sys.argv[1:])
