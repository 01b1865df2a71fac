"""Tables for the terminal, as Markdown and as LaTeX."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.markup import escape

from cadis.analysis import Spread
from cadis.report.terminal_table import Fitting, fitting_table

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

    def format_rows(self, escape: Callable[[str], str], bold: str) -> list[list[str]]:
        """Return the cells escaped, those to be stressed put into ``bold``."""
        return [
            [
                bold.format(escape(text)) if (row, column) in self.best else escape(text)
                for column, text in enumerate(cells)
            ]
            for row, cells in enumerate(self.rows)
        ]


def fits_a_terminal(sheet: Sheet) -> bool:
    """Whether its columns can stand side by side."""
    return len(sheet.columns) <= _MOST_COLUMNS


def to_rich(sheet: Sheet) -> Fitting:
    """The sheet as a table for the terminal."""
    rows = sheet.format_rows(escape, "[bold]{}[/bold]")
    look: Any = {
        "box": SIMPLE_HEAD,
        "pad_edge": False,
        "padding": (0, 1, 0, 0),
    }  # to fit 80 columns
    return fitting_table(escape(sheet.caption), list(map(escape, sheet.columns)), rows, **look)


def to_markdown(sheet: Sheet) -> str:
    """The sheet as Markdown, for a README or an issue."""
    head = [_markdown(title) for title in sheet.columns]
    rule = ["---", *["---:"] * (len(head) - 1)]
    rows = [head, rule, *sheet.format_rows(_markdown, "**{}**")]
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([f"**{_markdown(sheet.caption)}**", "", *lines, ""])


def to_latex(sheet: Sheet) -> str:
    """The sheet as LaTeX, for a paper; it wants the package booktabs."""
    rows = [list(map(_latex, sheet.columns)), *sheet.format_rows(_latex, "\\textbf{{{}}}")]
    head, *body = [f"    {' & '.join(cells)} \\\\" for cells in rows]
    lines = [
        "\\begin{table}",
        "  \\centering",
        f"  \\caption{{{_latex(sheet.caption)}}}",
        f"  \\label{{tab:{re.sub(r'[^a-z]+', '-', sheet.caption.lower()).strip('-')}}}",
        f"  \\begin{{tabular}}{{l{'r' * (len(sheet.columns) - 1)}}}",
        *("    \\toprule", head, "    \\midrule", *body, "    \\bottomrule"),
        "  \\end{tabular}",
        "\\end{table}\n",
    ]
    return "\n".join(lines)


def shown_number(value: float | None) -> str:
    """A measure as text, nothing if there is none."""
    return "" if value is None else f"{value:.{SHOWN_DIGITS}f}"


def shown_spread(spread: Spread | None) -> str:
    """Mean and deviation as text, nothing if there is neither."""
    if spread is None:
        return ""
    deviation = "" if spread.deviation is None else f"±{shown_number(spread.deviation)}"
    return f"{shown_number(spread.mean)}{deviation}"


def best_of(means: Mapping[_Key, float], higher: bool = True) -> list[_Key]:
    """Return who has the best mean as tables show it, all that share it; nobody if all do."""
    rounded = {key: round(mean, SHOWN_DIGITS) for key, mean in means.items()}
    best = (max if higher else min)(rounded.values(), default=None)
    leaders = [key for key, mean in rounded.items() if mean == best]
    return leaders if len(leaders) < len(rounded) else []


def shown_p(p_value: float) -> str:
    """A p-value with as many digits as mean something."""
    return f"{p_value:.3f}" if p_value >= 0.001 else "< 0.001"


def _markdown(text: str) -> str:
    """Escape what has a meaning in Markdown."""
    return re.sub(r"[\\|*_`<>\[\]]", r"\\\g<0>", text)


def _latex(text: str) -> str:
    """Escape what has a meaning in LaTeX; a hyphen before a number becomes a minus sign."""
    text = re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", text)
    return "".join(_LATEX.get(letter, letter) for letter in text)
