"""Tables that lose no number in a narrow terminal: what does not fit side by side is put below."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement, measure_renderables
from rich.table import Column, Table

_WHOLE = 30
"""Letters of the longest number with what belongs to it, such as "12.3 (1.2x), 1 of 3 seeds"."""


class Fitting:
    """A table that is as wide as the terminal at most, for ``console.print``.

    Its first column, which names the rows, comes again with each part. Words are wrapped, and a
    name that is longer than its column goes on in the next line; a number is never cut.
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table, unlimited = self.table, options.update_width(10_000)
        longest = options.max_width // 3  # a word that is longer goes on in the next line
        ranges = [_range(console, unlimited, column, longest) for column in table.columns]
        edges = 2 if table.box and table.show_edge else 0
        beside = table.padding[1] + table.padding[3] + (1 if table.box else 0)
        room = options.max_width - edges
        if table.title:  # by itself, as it may be wider than the table
            yield console.render_str(str(table.title), style="table.title")
        for places in _side_by_side([found.minimum + beside for found in ranges], room):
            widths = _shared([ranges[n] for n in places], room - beside * len(places))
            yield _part(table, [table.columns[place] for place in places], widths)


def fitting_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    words: Collection[str] = (),
    **look: Any,
) -> Fitting:
    """Return a table; the first column and those of ``words`` are no numbers, and at the left."""
    table = Table(title=title, title_justify="left", **look)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number and name not in words else "left")
    for row in rows:
        table.add_row(*row)
    return Fitting(table)


def _range(console: Console, options: ConsoleOptions, column: Column, longest: int) -> Measurement:
    """How narrow and how wide a column may be; numbers, which stand at the right, stay whole."""
    found = measure_renderables(console, options, [column.header, *column.cells])
    if column.justify != "right":
        return Measurement(min(longest, found.minimum), found.maximum)
    cells = measure_renderables(console, options, list(column.cells))
    return Measurement(min(_WHOLE, max(found.minimum, cells.maximum)), found.maximum)


def _side_by_side(least: Sequence[int], room: int) -> Iterator[list[int]]:
    """Columns that fit together, by their smallest widths; the first is among all of them."""
    places, used = [0], least[0]
    for place in range(1, len(least)):
        if len(places) > 1 and used + least[place] > room:
            yield places
            places, used = [0], least[0]
        places.append(place)
        used += least[place]
    yield places


def _shared(ranges: Sequence[Measurement], room: int) -> list[int]:
    """Widths between the smallest and the largest: that of names first, then the narrowest."""
    widths = [found.minimum for found in ranges]
    widths[0] = max(widths[0], min(ranges[0].maximum, room // 2, room - sum(widths[1:])))
    while sum(widths) < room:
        wanting = [n for n, found in enumerate(ranges) if widths[n] < found.maximum]
        if not wanting:
            break
        widths[min(wanting, key=lambda place: widths[place])] += 1
    return widths


def _part(table: Table, columns: Sequence[Column], widths: Sequence[int]) -> Table:
    """A table like another one with some of its columns, so wide."""
    part = Table(
        box=table.box, show_header=table.show_header, padding=table.padding, pad_edge=table.pad_edge
    )
    for column, width in zip(columns, widths, strict=True):
        look = {"justify": column.justify, "style": column.style, "overflow": "fold"}
        part.add_column(column.header, width=max(1, width), **look)  # type: ignore[arg-type]
    for row in zip(*(list(column.cells) for column in columns), strict=True):
        part.add_row(*row)
    return part
