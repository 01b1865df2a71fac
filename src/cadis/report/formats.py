"""Format tables for the terminal, as Markdown and as LaTeX."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.markup import escape

from cadis._io import escape_controls
from cadis.analysis import Spread
from cadis.report.terminal_table import TerminalTable, make_terminal_table

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

_Key = TypeVar("_Key")
_MAX_COLUMNS = 7  # wider tables are not printed in the terminal
DIGITS = 3
"""Decimal places of metrics in tables."""


def join_names(names: Sequence[str], limit: int = 10) -> str:
    """Join names of classes with commas; if there are too many, return only their number."""
    return ", ".join(names) if len(names) <= limit else f"{len(names)} classes"


@dataclass(frozen=True)
class TextTable:
    """A table whose cells are text.

    Attributes:
        caption: caption of the table.
        columns: column titles; the first column has the names of the rows.
        rows: cells of each row.
        best: row and column indices of the cells in bold.
        note: sentences that explain the columns; empty if the titles are enough.
    """

    caption: str
    columns: list[str]
    rows: list[list[str]]
    best: list[tuple[int, int]]
    note: str = ""

    def format_rows(self, escape: Callable[[str], str], bold: str) -> list[list[str]]:
        """Return the escaped cells, with a template applied to the best ones.

        Args:
            escape: function that escapes a cell.
            bold: template, such as "**{}**".
        """
        return [
            [
                bold.format(escape(text)) if (row, column) in self.best else escape(text)
                for column, text in enumerate(cells)
            ]
            for row, cells in enumerate(self.rows)
        ]


def fits_terminal(table: TextTable) -> bool:
    """Return whether a table is narrow enough for the terminal."""
    return len(table.columns) <= _MAX_COLUMNS


def to_rich(table: TextTable) -> TerminalTable:
    """Return a table for the terminal."""
    rows = table.format_rows(escape, "[bold]{}[/bold]")
    # Narrow, to fit into a terminal of 80 characters.
    style: Any = {"box": SIMPLE_HEAD, "pad_edge": False, "padding": (0, 1, 0, 0)}
    return make_terminal_table(
        escape(table.caption), list(map(escape, table.columns)), rows, **style
    )


def to_markdown(table: TextTable) -> str:
    """Return a table as Markdown."""
    head = [_markdown(title) for title in table.columns]
    rule = ["---", *["---:"] * (len(head) - 1)]
    rows = [head, rule, *table.format_rows(_markdown, "**{}**")]
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    note = [_markdown(table.note), ""] if table.note else []
    return "\n".join([f"**{_markdown(table.caption)}**", "", *lines, "", *note])


def to_latex(table: TextTable) -> str:
    """Return a table as LaTeX, which needs the package booktabs; the note is a comment."""
    rows = [list(map(_latex, table.columns)), *table.format_rows(_latex, "\\textbf{{{}}}")]
    head, *body = [f"    {' & '.join(cells)} \\\\" for cells in rows]
    lines = [
        *([f"% {escape_controls(table.note)}"] if table.note else []),
        "\\begin{table}",
        "  \\centering",
        f"  \\caption{{{_latex(table.caption)}}}",
        f"  \\label{{tab:{re.sub(r'[^a-z]+', '-', table.caption.lower()).strip('-')}}}",
        f"  \\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
        *("    \\toprule", head, "    \\midrule", *body, "    \\bottomrule"),
        "  \\end{tabular}",
        "\\end{table}\n",
    ]
    return "\n".join(lines)


def format_number(value: float | None) -> str:
    """Return a metric as text; empty for None."""
    return "" if value is None else f"{value:.{DIGITS}f}"


def format_spread(spread: Spread | None) -> str:
    """Return mean and deviation as text; empty for None."""
    if spread is None:
        return ""
    deviation = "" if spread.deviation is None else f"±{format_number(spread.deviation)}"
    return f"{format_number(spread.mean)}{deviation}"


def find_best(means: Mapping[_Key, float], higher: bool = True) -> list[_Key]:
    """Return the keys with the best mean after rounding; none if all means are equal."""
    rounded = {key: round(mean, DIGITS) for key, mean in means.items()}
    best = (max if higher else min)(rounded.values(), default=None)
    leaders = [key for key, mean in rounded.items() if mean == best]
    return leaders if len(leaders) < len(rounded) else []


def format_p_value(p_value: float) -> str:
    """Return a p-value with three decimal places."""
    return f"{p_value:.3f}" if p_value >= 0.001 else "< 0.001"


def escape_html(sentence: str) -> str:
    """Escape HTML, links and controls in a sentence of a Markdown file."""
    return re.sub(r"[<\[]", r"\\\g<0>", escape_controls(sentence))


def _markdown(text: str) -> str:
    """Escape characters with a meaning in Markdown."""
    return re.sub(r"[\\|*_`<>\[\]]", r"\\\g<0>", escape_controls(text))


def _latex(text: str) -> str:
    """Escape characters with a meaning in LaTeX; write a hyphen before a number as a minus."""
    text = re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", escape_controls(text))
    return "".join(_LATEX.get(letter, letter) for letter in text)
