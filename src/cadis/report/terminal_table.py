"""Tables for narrow terminals: columns that do not fit are printed below the others."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement, measure_renderables
from rich.table import Column, Table

_MAX_NUMBER_WIDTH = 30  # characters of the longest number, such as "(1 of 3 seeds) 12.3"


class TerminalTable:
    """A table for ``console.print`` that is never wider than the terminal.

    Columns that do not fit are printed in further tables below. Each of them repeats the first
    column, which names the rows. Text is wrapped; numbers are never cut.
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table, unlimited = self.table, options.update_width(10_000)
        max_word = options.max_width // 3  # longer words are wrapped
        ranges = [_measure(console, unlimited, column, max_word) for column in table.columns]
        edges = 2 if table.box and table.show_edge else 0
        gap = table.padding[1] + table.padding[3] + (1 if table.box else 0)
        width = options.max_width - edges
        if table.title:  # printed separately, since it may be wider than the table
            yield console.render_str(str(table.title), style="table.title")
        for indices in _split_columns([size.minimum + gap for size in ranges], width):
            widths = _choose_widths([ranges[n] for n in indices], width - gap * len(indices))
            yield _make_subtable(table, [table.columns[n] for n in indices], widths)


def make_terminal_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    words: Collection[str] = (),
    **style: Any,
) -> TerminalTable:
    """Return a table for the terminal.

    Args:
        title: title above the table.
        columns: column titles.
        rows: cells of each row.
        words: titles of further columns with text, which are aligned left like the first column;
            all others have numbers, which are aligned right.
        style: options of ``rich.table.Table``.
    """
    table = Table(title=title, title_justify="left", **style)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number and name not in words else "left")
    for row in rows:
        table.add_row(*row)
    return TerminalTable(table)


def _measure(
    console: Console, options: ConsoleOptions, column: Column, max_word: int
) -> Measurement:
    """Return the smallest and largest width of a column; numbers are never wrapped."""
    size = measure_renderables(console, options, [column.header, *column.cells])
    if column.justify != "right":
        return Measurement(min(max_word, size.minimum), size.maximum)
    cells = measure_renderables(console, options, list(column.cells))
    minimum = min(_MAX_NUMBER_WIDTH, max(size.minimum, cells.maximum))
    return Measurement(minimum, size.maximum)


def _split_columns(minimums: Sequence[int], width: int) -> Iterator[list[int]]:
    """Yield the indices of columns that fit side by side; always with the first."""
    indices, total = [0], minimums[0]
    for index in range(1, len(minimums)):
        if len(indices) > 1 and total + minimums[index] > width:
            yield indices
            indices, total = [0], minimums[0]
        indices.append(index)
        total += minimums[index]
    yield indices


def _choose_widths(ranges: Sequence[Measurement], total: int) -> list[int]:
    """Return column widths: the names in the first column get space first, then narrow columns."""
    widths = [size.minimum for size in ranges]
    widths[0] = max(widths[0], min(ranges[0].maximum, total // 2, total - sum(widths[1:])))
    while sum(widths) < total:
        wrapped = [n for n, size in enumerate(ranges) if widths[n] < size.maximum]
        if not wrapped:
            break
        widths[min(wrapped, key=lambda n: widths[n])] += 1
    return widths


def _make_subtable(table: Table, columns: Sequence[Column], widths: Sequence[int]) -> Table:
    """Return a table in the same style with some of the columns, at the given widths."""
    subtable = Table(
        box=table.box, show_header=table.show_header, padding=table.padding, pad_edge=table.pad_edge
    )
    for column, width in zip(columns, widths, strict=True):
        style = {"justify": column.justify, "style": column.style, "overflow": "fold"}
        subtable.add_column(column.header, width=max(1, width), **style)  # type: ignore[arg-type]
    for row in zip(*(list(column.cells) for column in columns), strict=True):
        subtable.add_row(*row)
    return subtable
