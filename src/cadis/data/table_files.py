"""Reading a user's tables: one CSV or Parquet file, or a folder with one file per client."""

import csv
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cadis._io import (
    Callbacks,
    from_csv_cell,
    is_file,
    is_folder,
    natural_key,
    open_regular,
    to_printable,
)
from cadis.errors import CadisError

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
"""Suffixes of table files."""

TRAIN, TEST = "train", "test"
"""Names of the training and the test part, in folders, files and the column ``split``."""

_DELIMITERS = (",", ";", "\t", "|")

_Rows: TypeAlias = list[tuple[int, tuple[str, ...]]]
"""Line number of each row (in a Parquet file, row number from 1) and the cells of the row."""


class _Source(NamedTuple):
    """A file with its client and its part, train or test; "" if the path does not define them."""

    path: Path
    client: str = ""
    part: str = ""


def read_table(path: Path) -> "DataFrame":
    r"""Read the cells of a file as strings.

    Args:
        path: CSV, TSV or Parquet file.

    Returns:
        A data frame of strings; the index is the line number in the file.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from cadis.data import read_table
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "patients.csv")
        ...     _ = path.write_text("age,label\n61,ill\n42,well\n")
        ...     cells = read_table(path)
        >>> cells["age"].tolist()
        ['61', '42']
    """
    cells = _read_file(path)
    if not len(cells.columns):
        raise CadisError(
            f"{to_printable(path)} is empty; put the titles of the columns into its first line."
        )
    return cells


def read_tables(path: Path, callbacks: Callbacks) -> "DataFrame":
    """Read the cells of a file, or of all files in a folder, as strings.

    Returns:
        A data frame whose index has the levels path, client, part and line. Client and part are
        "" if the path does not define them.
    """
    import pandas as pd  # noqa: PLC0415 - slow to import

    tables: dict[_Source, DataFrame] = {}
    for source in _find_sources(path, callbacks):
        cells = _read_file(source.path)
        if not len(cells):
            callbacks.say(f"{to_printable(source.path)} has no rows; it is left out.")
            continue
        tables[source] = cells
        first = next(iter(tables))
        if different := {*cells} ^ {*tables[first]}:
            title = min(different)
            having, lacking = (source, first) if title in cells else (first, source)
            raise CadisError(
                f"{to_printable(having.path)} has a column {title}, which "
                f"{to_printable(lacking.path)} lacks; give all tables the same columns."
            )
    if not tables:
        raise CadisError(
            f"There are no rows in {to_printable(path)}; put the titles of the columns into the "
            "first line, and one row into each other line."
        )
    return pd.concat(tables, names=[*_Source._fields, "line"])


def format_location(cells: "Series", row: int = 0) -> str:
    """Return the file and line of a row, as text; ``cells`` is from :func:`read_tables`."""
    path, _, _, line = cells.index[row]
    return f"{to_printable(path)}, line {line}"


def _find_sources(path: Path, callbacks: Callbacks) -> list[_Source]:
    """Return the tables at a path, each with its client and part.

    In a folder, each table is a client, except ``test``, and ``train`` if it is the only other one.
    """
    if not is_folder(path):
        if path.suffix.lower() not in TABLE_SUFFIXES:
            raise CadisError(
                f"{to_printable(path)} is neither a folder nor a table; a table has the suffix "
                f"{', '.join(TABLE_SUFFIXES)}."
            )
        return [_Source(path)]
    if is_folder(path / TRAIN) and is_folder(path / TEST):
        return [
            _Source(table, to_printable(table.stem), part)
            for part in (TRAIN, TEST)
            for table in _list_tables(path / part, callbacks)
        ]
    names = {table: to_printable(table.stem) for table in _list_tables(path, callbacks)}
    has_test = TEST in names.values()
    if has_test:
        callbacks.say(
            f"The table named test in {to_printable(path)} is the test set; it is not a client."
        )
    not_clients = {TEST, TRAIN} if {*names.values()} - {TEST} == {TRAIN} else {TEST}
    train = TRAIN if has_test else ""
    return [
        _Source(table, "" if name in not_clients else name, TEST if name == TEST else train)
        for table, name in names.items()
    ]


def _list_tables(folder: Path, callbacks: Callbacks) -> list[Path]:
    """Return the tables in a folder, one per client, in natural order of their names."""
    try:
        entries = sorted(folder.iterdir(), key=lambda path: natural_key(path.name))
    except OSError as error:
        raise CadisError(f"{to_printable(folder)} cannot be read: {error.strerror}.") from None
    visible = [path for path in entries if not path.name.startswith(".")]
    tables = [p for p in visible if p.suffix.lower() in TABLE_SUFFIXES and not p.is_dir()]
    if others := [path for path in visible if path not in tables]:
        callbacks.say(
            f"Skipped {len(others)} of {len(visible)} entries of {to_printable(folder)} that are "
            f"not tables, such as {to_printable(others[0].name)}."
        )
    if not tables:
        suffixes = ", ".join(TABLE_SUFFIXES)
        raise CadisError(
            f"There are no tables ({suffixes}) in {to_printable(folder)}; put them there."
        )
    for table, next_table in pairwise(tables):
        if table.stem == next_table.stem:
            raise CadisError(
                f"{to_printable(table)} and {to_printable(next_table.name)} are both named "
                f"{to_printable(table.stem)}, but a client has one table; rename or remove one of "
                "them."
            )
    return tables


def _read_file(path: Path) -> "DataFrame":
    import pandas as pd  # noqa: PLC0415 - slow to import

    if not is_file(path):
        raise CadisError(f"There is no file {to_printable(path)}; give the path of a table.")
    titles, rows = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    for number, title in enumerate(titles, 1):
        if not title:
            raise CadisError(f"Column {number} of {to_printable(path)} has no title; give it one.")
        if titles.count(title) > 1:
            raise CadisError(
                f"{to_printable(path)} has two columns named {title}; rename one of them."
            )
    for line, cells in rows:
        if len(cells) != len(titles):
            raise CadisError(
                f"{to_printable(path)} has {len(cells)} cells in line {line}, but {len(titles)} "
                "titles; give each row one cell per title."
            )
    lines = [line for line, _ in rows]
    return pd.DataFrame([cells for _, cells in rows], lines, titles, dtype=object)


def _read_csv(path: Path) -> tuple[Sequence[str], _Rows]:
    """Return the titles and the rows, without empty lines.

    ``pandas.read_csv`` is not used: it fills short rows, and does not return line numbers.
    """
    try:
        with open_regular(path, "r", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=_find_delimiter(file.readline()), strict=True)
            file.seek(0)
            stripped = ((reader.line_num, (*map(_parse_cell, cells),)) for cells in reader)
            rows = [(line, cells) for line, cells in stripped if any(cells)]
    except UnicodeDecodeError:
        raise CadisError(f"{to_printable(path)} is not valid UTF-8; save it as UTF-8.") from None
    except csv.Error as error:
        raise CadisError(
            f"{to_printable(path)} is not a valid table: {error}, in line {reader.line_num}."
        ) from None
    except OSError as error:
        raise CadisError(f"{to_printable(path)} cannot be read: {error.strerror}.") from None
    return rows[0][1] if rows else (), rows[1:]


def _parse_cell(text: str) -> str:
    return from_csv_cell(text.strip())


def _find_delimiter(line: str) -> str:
    """Return the delimiter that splits the line into the most titles; a comma if all are equal."""
    return max(_DELIMITERS, key=lambda char: len(next(csv.reader([line], delimiter=char), [])))


def _read_parquet(path: Path) -> tuple[Sequence[str], _Rows]:
    try:
        import pyarrow.parquet  # noqa: PLC0415 - an extra
    except ImportError:
        raise CadisError(
            f"Reading {to_printable(path)} needs pyarrow: pip install 'cadis[tables]'; or save it "
            "as CSV."
        ) from None
    try:
        table = pyarrow.parquet.read_table(path)
        columns = [*_to_text(path, table)]
    except CadisError:
        raise
    except Exception as error:  # a damaged file may raise any exception
        reason = " ".join(str(error).split()).removesuffix(".")
        raise CadisError(f"{to_printable(path)} cannot be read: {to_printable(reason)}.") from None
    return table.column_names, [*enumerate(zip(*columns, strict=True), 1)]


def _to_text(path: Path, table: Any) -> Iterator[list[str]]:
    """Yield the cells of each column as they would be in a CSV file."""
    from pyarrow import types  # noqa: PLC0415

    for field, column in zip(table.schema, table.columns, strict=True):
        if types.is_nested(field.type) or types.is_binary(field.type):
            raise CadisError(
                f"The column {field.name} of {to_printable(path)} has type {field.type}, which is "
                "neither numbers nor text; remove it from the file."
            )
        yield ["" if value is None else str(value).strip() for value in column.to_pylist()]
