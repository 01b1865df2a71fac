"""Reading a user's tables: one CSV or Parquet file, or a folder with one file per client."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cadis._io import (
    Callbacks,
    check_file_size,
    check_memory,
    check_path,
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

_CELL_BYTES = 150
"""Memory of a cell: a Python string, and references to it in several lists and the data frame."""

_MAX_COLUMNS = 100_000

_CHECK_EVERY = 100_000
"""Number of cells between two checks of the memory."""

_TOO_LARGE = "split the table into several files, or leave out columns"

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
    path = check_path("path", path)
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
    _check_titles(path, titles)
    for line, cells in rows:
        if len(cells) != len(titles):
            raise CadisError(
                f"{to_printable(path)} has {len(cells)} cells in line {line}, but {len(titles)} "
                "titles; give each row one cell per title."
            )
    lines = [line for line, _ in rows]
    return pd.DataFrame([cells for _, cells in rows], lines, titles, dtype=object)


def _check_titles(path: Path, titles: Sequence[str]) -> None:
    if len(titles) > _MAX_COLUMNS:
        raise CadisError(
            f"{to_printable(path)} has {len(titles):,} columns, more than {_MAX_COLUMNS:,}; put "
            "one row into each line, or leave out columns."
        )
    seen = set[str]()
    for number, title in enumerate(titles, 1):
        if not title:
            raise CadisError(f"Column {number} of {to_printable(path)} has no title; give it one.")
        if title in seen:
            raise CadisError(
                f"{to_printable(path)} has two columns named {title}; rename one of them."
            )
        seen.add(title)


def _read_csv(path: Path) -> tuple[Sequence[str], _Rows]:
    """Return the titles and the rows, without empty lines.

    ``pandas.read_csv`` is not used: it fills short rows, and does not return line numbers.
    """
    check_file_size(path)
    try:
        with open_regular(path, "r", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=_find_delimiter(file.readline()), strict=True)
            file.seek(0)
            stripped = ((reader.line_num, (*map(_parse_cell, cells),)) for cells in reader)
            rows = _collect(path, ((line, cells) for line, cells in stripped if any(cells)))
    except UnicodeDecodeError:
        raise CadisError(f"{to_printable(path)} is not valid UTF-8; save it as UTF-8.") from None
    except csv.Error as error:
        raise CadisError(
            f"{to_printable(path)} is not a valid table: {error}, in line {reader.line_num}."
        ) from None
    except OSError as error:
        raise CadisError(f"{to_printable(path)} cannot be read: {error.strerror}.") from None
    return rows[0][1] if rows else (), rows[1:]


def _collect(path: Path, rows: Iterator[tuple[int, tuple[str, ...]]]) -> _Rows:
    """Return the rows as a list; raise an error before they need too much memory."""
    collected: _Rows = []
    num_cells, num_checked = 0, 0
    for line, cells in rows:
        collected.append((line, cells))
        num_cells += len(cells)
        if num_cells - num_checked > _CHECK_EVERY:
            check_memory(_CELL_BYTES * num_cells, to_printable(path), _TOO_LARGE)
            num_checked = num_cells
    return collected


def _parse_cell(text: str) -> str:
    return from_csv_cell(text.strip())


def _find_delimiter(line: str) -> str:
    """Return the delimiter that splits the line into the most titles; a comma if all are equal."""
    return max(_DELIMITERS, key=lambda char: _count_cells(line, char))


def _count_cells(line: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader([line], delimiter=delimiter), []))
    except csv.Error:  # without a delimiter, a long line is a cell that is too long
        return 0


def _read_parquet(path: Path) -> tuple[Sequence[str], _Rows]:
    try:
        import pyarrow.parquet  # noqa: PLC0415 - an extra
    except ImportError:
        raise CadisError(
            f"Reading {to_printable(path)} needs pyarrow: pip install 'cadis[tables]'; or save it "
            "as CSV."
        ) from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _check_parquet(path, file.metadata)
            # Text is not repeated in memory, whatever the file says about its size.
            words = [f.name for f in file.schema_arrow if _is_text(f.type)]
        table = pyarrow.parquet.read_table(path, read_dictionary=words)
        columns = [*_to_text(path, table)]
    except CadisError:
        raise
    except Exception as error:  # a damaged file may raise any exception
        reason = " ".join(str(error).split()).removesuffix(".")
        raise CadisError(f"{to_printable(path)} cannot be read: {to_printable(reason)}.") from None
    return table.column_names, [*enumerate(zip(*columns, strict=True), 1)]


def _check_parquet(path: Path, metadata: Any) -> None:
    """Raise an error if the rows need too much memory; equal values take no space in the file."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    num_rows = max(metadata.num_rows, sum(group.num_rows for group in groups))
    if metadata.num_columns > _MAX_COLUMNS:
        raise CadisError(
            f"{to_printable(path)} has {metadata.num_columns:,} columns, more than "
            f"{_MAX_COLUMNS:,}; leave out columns."
        )
    nbytes = sum(group.total_byte_size for group in groups)
    nbytes += _CELL_BYTES * num_rows * metadata.num_columns
    check_memory(nbytes, to_printable(path), _TOO_LARGE, path.stat().st_size)


def _is_text(kind: Any) -> bool:
    from pyarrow import types  # noqa: PLC0415

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _to_text(path: Path, table: Any) -> Iterator[list[str]]:
    """Yield the cells of each column as they would be in a CSV file."""
    from pyarrow import types  # noqa: PLC0415

    for field, column in zip(table.schema, table.columns, strict=True):
        if types.is_nested(field.type) or types.is_binary(field.type):
            raise CadisError(
                f"The column {field.name} of {to_printable(path)} has type {field.type}, which is "
                "neither numbers nor text; remove it from the file."
            )
        if not types.is_dictionary(field.type):
            yield _format_cells(column.to_pylist())
            continue
        cells: list[str] = []
        for chunk in column.chunks:
            texts = ["", *_format_cells(chunk.dictionary.to_pylist())]  # "" stands for no value
            cells += (texts[code + 1] for code in chunk.indices.fill_null(-1).to_pylist())
        yield cells


def _format_cells(values: Iterable[object]) -> list[str]:
    return ["" if value is None else str(value).strip() for value in values]
