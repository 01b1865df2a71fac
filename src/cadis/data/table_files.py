"""Tables as files: CSV by the standard library, Parquet by pyarrow."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cadis._io import is_file, shown
from cadis.errors import CadisError

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
"""How files of tables are named."""

_DELIMITERS = (",", ";", "\t", "|")
_BEFORE_FIRST = 1
"""A table's titles stand before its first row."""


class EmptyTableError(CadisError):
    """A file has nothing in it, not even titles."""


@dataclass(frozen=True)
class Table:
    """The rows of a file, column by column, as text.

    Attributes:
        path: the file.
        columns: the cells of each column, by its title; "" is a value that is missing.
        lines: where each row is in the file: its line in CSV, its number from 1 in Parquet.
    """

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]


def read_table(path: Path) -> Table:
    """The table in a file; refused in one sentence if it is none."""
    if not is_file(path):
        raise CadisError(f"There is no file {shown(path)}; name a table by its path.")
    titles, rows = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    _check_titles(path, titles)
    for line, cells in rows:
        if len(cells) != len(titles):
            raise CadisError(
                f"{shown(path)} has {len(cells)} cells in line {line}, but {len(titles)} titles; "
                "give every row a cell for each title."
            )
    columns = {
        title: [cells[number].strip() for _, cells in rows] for number, title in enumerate(titles)
    }
    return Table(path, columns, [line for line, _ in rows])


def _check_titles(path: Path, titles: Sequence[str]) -> None:
    if not titles:
        raise EmptyTableError(
            f"{shown(path)} is empty; its first line must have the columns' titles."
        )
    for number, title in enumerate(titles):
        if not title:
            raise CadisError(f"Column {number + 1} of {shown(path)} has no title; give it one.")
        if titles.count(title) > 1:
            raise CadisError(f"{shown(path)} has two columns called {title}; rename one of them.")


def _read_csv(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Titles, and rows with their lines; empty lines are no rows."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=_delimiter(file.readline()), strict=True)
            file.seek(0)
            rows = [(reader.line_num, cells) for cells in reader if any(map(str.strip, cells))]
    except UnicodeDecodeError:
        raise CadisError(f"{shown(path)} is not valid UTF-8; save it as such.") from None
    except csv.Error as error:
        raise CadisError(
            f"{shown(path)} is no table: {error}, in line {reader.line_num}."
        ) from None
    except OSError as error:
        raise CadisError(f"{shown(path)} cannot be read: {error.strerror}.") from None
    titles = [title.strip() for title in rows[0][1]] if rows else []
    return titles, rows[_BEFORE_FIRST:]


def _delimiter(line: str) -> str:
    """What separates most titles; a comma, if nothing does."""
    return max(_DELIMITERS, key=lambda mark: len(next(csv.reader([line], delimiter=mark), [])))


def _read_parquet(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Titles, and rows with their numbers."""
    try:
        import pyarrow.parquet  # noqa: PLC0415 - an extra
    except ImportError:
        raise CadisError(
            f"Reading {shown(path)} takes pyarrow: pip install 'cadis[tables]'; or save it as CSV."
        ) from None
    try:
        table = pyarrow.parquet.read_table(path)
        columns = list(_as_text(path, table))
    except CadisError:
        raise
    except Exception as error:  # whatever a damaged file may raise
        why = " ".join(str(error).split()).removesuffix(".")
        raise CadisError(f"{shown(path)} cannot be read: {shown(why)}.") from None
    rows = zip(*columns, strict=True)
    return [*table.column_names], [(number, [*row]) for number, row in enumerate(rows, 1)]


def _as_text(path: Path, table: Any) -> Iterator[list[str]]:
    """Each column's cells as a CSV file would have them."""
    import pyarrow.types as kinds  # noqa: PLC0415

    for field, column in zip(table.schema, table.columns, strict=True):
        if kinds.is_nested(field.type) or kinds.is_binary(field.type):
            raise CadisError(
                f"The column {field.name} of {shown(path)} has type {field.type}, which is neither "
                "numbers nor words; leave it out of the file."
            )
        yield ["" if value is None else str(value) for value in column.to_pylist()]
