"""Make text from outside harmless: names of files, clients, classes and columns.

A name may contain codes that change what a terminal shows, or a formula that a spreadsheet computes
when it opens a CSV file.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from unicodedata import category

_ESCAPED = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of control characters, invisible characters, surrogates and line separators."""
_JOINERS = "\u200c\u200d"
"""Invisible characters that some scripts and emoji need; they do not change the direction."""
_SIGNS = r"[=+\-@\uff1d\uff0b\uff0d\uff20]"
"""Characters that begin a formula, also in full width."""
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_FORMULA = re.compile(rf"\s*'*\s*{_SIGNS}|'*\t")
_AFTER_SEPARATOR = re.compile(rf"([;\t]\s*)(?='*{_SIGNS})")
"""A formula after a character at which some programs split lines instead of at commas."""
_MARKED_AFTER_SEPARATOR = re.compile(rf"([;\t]\s*)'(?='*{_SIGNS})")


def escape_controls(text: object, keep: str = "") -> str:
    r"""Return a text in which control characters and invisible characters are written as escapes.

    Terminals understand some of them as commands, and others change the direction of text.

    Args:
        text: the text, or an object that is converted to text.
        keep: characters that are not escaped.

    Example:
        >>> print(escape_controls("red\x1b[31m"))
        red\x1b[31m
    """
    string = str(text)
    if string.isprintable():
        return string
    keep += _JOINERS
    return "".join(
        letter.encode("unicode_escape").decode()
        if category(letter) in _ESCAPED and letter not in keep
        else letter
        for letter in string
    )


def to_csv_cell(value: object) -> object:
    """Return a cell of a CSV file that no spreadsheet computes; numbers are not changed.

    An apostrophe before a formula makes it a text, as OWASP recommends.
    """
    if not isinstance(value, str):
        return value
    text = escape_controls(value, keep="\t\n")  # csv does not quote \r
    if _NUMBER.fullmatch(text):
        return text
    text = _AFTER_SEPARATOR.sub(r"\1'", text)
    return f"'{text}" if _FORMULA.match(text) else text


def from_csv_cell(text: str) -> str:
    """Return the text from which :func:`to_csv_cell` made a cell, except for escapes."""
    if text[:1] == "'" and _FORMULA.match(text[1:]):
        text = text[1:]
    return _MARKED_AFTER_SEPARATOR.sub(r"\1", text)


def format_csv(rows: Iterable[Sequence[object]], line_end: str = "\n") -> str:
    """Return rows as the content of a CSV file, without formulas."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=line_end)
    writer.writerows([to_csv_cell(value) for value in row] for row in rows)
    return text.getvalue()
