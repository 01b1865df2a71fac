"""Tables for the terminal, as Markdown and as LaTeX."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from cadis.analysis import Spread
from cadis.report.terminal_table import Fitting

_LATEX = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
    "\N{MINUS SIGN}": "$-$",
}

_MOST_COLUMNS = 7
SHOWN_DIGITS = 3
"""Digits of measures that tables show."""


def listed(names: Sequence[str], limit: int = 10) -> str:
    """Names in a row; of too many, only how many there are."""
    return ", ".join(names) if len(names) <= limit else f"{len(names)} classes"


@dataclass(frozen=True)
class Sheet:
    """A table of text.

    Attributes:
        caption: what it shows.
        columns: titles; the first is that of the rows' names.
        rows: cells.
        best: places of the cells to be stressed, row and column.
    """

    caption: str
    columns: list[str]
    rows: list[list[str]]
    best: list[tuple[int, int]]

    def cells(self, row: int) -> Iterable[tuple[str, bool]]:
        """The cells of a row, and whether they are stressed."""
        return ((text, (row, column) in self.best) for column, text in enumerate(self.rows[row]))


def fits_a_terminal(sheet: Sheet) -> bool:
    """Whether its columns can stand side by side."""
    return len(sheet.columns) <= _MOST_COLUMNS


def to_rich(sheet: Sheet) -> Fitting:
    """The sheet as a table for the terminal."""
    table = Table(title=escape(sheet.caption), title_justify="left", box=SIMPLE_HEAD)
    table.pad_edge, table.padding = False, (0, 1, 0, 0)  # to fit 80 columns
    for number, title in enumerate(sheet.columns):
        table.add_column(escape(title), justify="right" if number else "left")
    for row in range(len(sheet.rows)):
        cells = ((escape(text), best) for text, best in sheet.cells(row))
        table.add_row(*(f"[bold]{text}[/bold]" if best else text for text, best in cells))
    return Fitting(table)


def to_markdown(sheet: Sheet) -> str:
    """The sheet as Markdown, for a README or an issue."""
    rows = [
        [f"**{_markdown(text)}**" if best else _markdown(text) for text, best in sheet.cells(row)]
        for row in range(len(sheet.rows))
    ]
    head = [_markdown(title) for title in sheet.columns]
    rule = ["---", *["---:"] * (len(head) - 1)]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]
    return "\n".join([f"**{_markdown(sheet.caption)}**", "", *lines, ""])


def to_latex(sheet: Sheet) -> str:
    """The sheet as LaTeX, for a paper; it wants the package booktabs."""
    rows = [
        [f"\\textbf{{{_latex(text)}}}" if best else _latex(text) for text, best in sheet.cells(row)]
        for row in range(len(sheet.rows))
    ]
    lines = [f"{' & '.join(cells)} \\\\" for cells in rows]
    head = f"{' & '.join(map(_latex, sheet.columns))} \\\\"
    return "\n".join(
        [
            "\\begin{table}",
            "  \\centering",
            f"  \\caption{{{_latex(sheet.caption)}}}",
            f"  \\label{{tab:{re.sub(r'[^a-z]+', '-', sheet.caption.lower()).strip('-')}}}",
            f"  \\begin{{tabular}}{{l{'r' * (len(sheet.columns) - 1)}}}",
            "    \\toprule",
            f"    {head}",
            "    \\midrule",
            *(f"    {line}" for line in lines),
            "    \\bottomrule",
            "  \\end{tabular}",
            "\\end{table}",
            "",
        ]
    )


def shown_spread(spread: Spread | None) -> str:
    """Mean and deviation as text, nothing if there is neither."""
    if spread is None:
        return ""
    deviation = "" if spread.deviation is None else f"±{spread.deviation:.{SHOWN_DIGITS}f}"
    return f"{spread.mean:.{SHOWN_DIGITS}f}{deviation}"


def shown_p(p_value: float) -> str:
    """A p-value with as many digits as mean something."""
    return f"{p_value:.3f}" if p_value >= 0.001 else "< 0.001"


def _markdown(text: str) -> str:
    """Text that means nothing but itself."""
    for letter in "\\|*_`<>[]":
        text = text.replace(letter, f"\\{letter}")
    return text


def _latex(text: str) -> str:
    """The same for LaTeX; a minus becomes one."""
    text = re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", text)
    return "".join(_LATEX.get(letter, letter) for letter in text)
