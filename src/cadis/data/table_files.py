"""Tables of a user: one CSV or Parquet file, or a folder with a file for each client."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from cadis._io import Callbacks, is_file, is_folder, natural, shown
from cadis.errors import CadisError

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
"""How files of tables are named."""

TRAIN, TEST = "train", "test"
"""What folders, files, and a column of the split call the parts."""

_DELIMITERS = (",", ";", "\t", "|")

_Source: TypeAlias = tuple[Path, str | None, str | None]
"""A file, and its client and its part where the file's place says so."""

_Lines: TypeAlias = list[tuple[int, Sequence[str]]]
"""The cells of rows, each with its line in CSV, or its number from 1 in Parquet."""


@dataclass
class Table:
    """Rows of one or several files, column by column, as text."""

    columns: dict[str, list[str]]  # the cells by title; "" is a value that is missing
    places: list[str]  # file and line of each row, to be named
    clients: list[str | None]  # whose each row is; None if nobody's
    parts: list[str | None]  # what each row is for, train or test; None if that is not said

    def add(self, other: "Table") -> None:
        """Append the rows of another table with the same columns."""
        for title, cells in other.columns.items():
            self.columns[title] += cells
        self.places += other.places
        self.clients += other.clients
        self.parts += other.parts

    def take(self, rows: Sequence[int]) -> "Table":
        """Return some of the rows, in that order."""
        return Table(
            {title: [cells[n] for n in rows] for title, cells in self.columns.items()},
            [self.places[n] for n in rows],
            [self.clients[n] for n in rows],
            [self.parts[n] for n in rows],
        )

    def column(self, title: str, option: str) -> list[str]:
        """Return a column that the user names by an option."""
        if title not in self.columns:
            raise CadisError(
                f"There is no column {title}; name one of {', '.join(self.columns)} by {option}."
            )
        return self.columns[title]


def read_table(path: Path) -> Table:
    """Return the table in a file; refuse it in one sentence if it is none."""
    table = _read_file(path)
    if not table.columns:
        raise CadisError(f"{shown(path)} is empty; its first line must have the columns' titles.")
    return table


def read_tables(place: Path, callbacks: Callbacks) -> Table:
    """Return the rows of a file, or of all files in a folder."""
    whole: Table | None = None
    first = place
    for path, client, part in _find_sources(place, callbacks):
        table = _read_file(path, client, part)
        if not table.places:
            callbacks.say(f"{shown(path)} has no rows; it is left out.")
        elif whole is None:
            whole, first = table, path
        else:
            if odd := set(table.columns) ^ set(whole.columns):
                title = min(odd)
                having, lacking = (path, first) if title in table.columns else (first, path)
                raise CadisError(
                    f"{shown(having)} has a column {title}, which {shown(lacking)} lacks; give "
                    "all tables the same columns."
                )
            whole.add(table)
    if whole is None:
        raise CadisError(
            f"There are no rows in {shown(place)}; a table has the columns' titles in its first "
            "line, and a row in each other."
        )
    return whole


def _find_sources(place: Path, callbacks: Callbacks) -> list[_Source]:
    if not is_folder(place):
        if place.suffix.lower() not in TABLE_SUFFIXES:
            raise CadisError(
                f"{shown(place)} is neither a folder nor a table, which is called "
                f"{', '.join(f'NAME{suffix}' for suffix in TABLE_SUFFIXES)}."
            )
        return [(place, None, None)]
    if is_folder(place / TRAIN) and is_folder(place / TEST):
        return [
            (path, shown(path.stem), part)
            for part in (TRAIN, TEST)
            for path in _list_tables(place / part, callbacks)
        ]
    paths = _list_tables(place, callbacks)
    names = [shown(path.stem) for path in paths]
    with_test = TEST in names
    if with_test:
        callbacks.say(f"The table called test in {shown(place)} is the test set, and no client's.")
    nobodys = {TEST}
    if [name for name in names if name != TEST] == [TRAIN]:  # beside test, or alone
        nobodys.add(TRAIN)
    train = TRAIN if with_test else None
    return [
        (path, None if name in nobodys else name, TEST if name == TEST else train)
        for path, name in zip(paths, names, strict=True)
    ]


def _list_tables(folder: Path, callbacks: Callbacks) -> list[Path]:
    """Return the tables in a folder, one for each client, in the order of their names."""
    try:
        everything = sorted(folder.iterdir(), key=lambda path: natural(path.name))
    except OSError as error:
        raise CadisError(f"{shown(folder)} cannot be read: {error.strerror}.") from None
    visible = [path for path in everything if not path.name.startswith(".")]
    found = [p for p in visible if p.suffix.lower() in TABLE_SUFFIXES and not p.is_dir()]
    if other := [path for path in visible if path not in found]:
        callbacks.say(
            f"Left out {len(other)} of {len(visible)} entries of {shown(folder)} that are no "
            f"tables, such as {shown(other[0].name)}."
        )
    if not found:
        names = ", ".join(TABLE_SUFFIXES)
        raise CadisError(f"There are no tables ({names}) in {shown(folder)}; put them there.")
    for one, next_one in pairwise(found):
        if one.stem == next_one.stem:
            raise CadisError(
                f"{shown(one)} and {shown(next_one.name)} are both called {shown(one.stem)}, and a "
                "client has one table; rename or remove one of them."
            )
    return found


def _read_file(path: Path, client: str | None = None, part: str | None = None) -> Table:
    if not is_file(path):
        raise CadisError(f"There is no file {shown(path)}; name a table by its path.")
    titles, rows = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    for number, title in enumerate(titles, 1):
        if not title:
            raise CadisError(f"Column {number} of {shown(path)} has no title; give it one.")
        if titles.count(title) > 1:
            raise CadisError(f"{shown(path)} has two columns called {title}; rename one of them.")
    for line, cells in rows:
        if len(cells) != len(titles):
            raise CadisError(
                f"{shown(path)} has {len(cells)} cells in line {line}, but {len(titles)} titles; "
                "give every row a cell for each title."
            )
    return Table(
        {title: [cells[n].strip() for _, cells in rows] for n, title in enumerate(titles)},
        [f"{shown(path)}, line {line}" for line, _ in rows],
        [client] * len(rows),
        [part] * len(rows),
    )


def _read_csv(path: Path) -> tuple[list[str], _Lines]:
    """Return titles and rows; empty lines are no rows."""
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
    return titles, [*rows[1:]]


def _delimiter(line: str) -> str:
    """Return what separates most titles; a comma, if nothing does."""
    return max(_DELIMITERS, key=lambda mark: len(next(csv.reader([line], delimiter=mark), [])))


def _read_parquet(path: Path) -> tuple[list[str], _Lines]:
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
    return [*table.column_names], [*enumerate(zip(*columns, strict=True), 1)]


def _as_text(path: Path, table: Any) -> Iterator[list[str]]:
    """Yield each column's cells as a CSV file would have them."""
    import pyarrow.types as kinds  # noqa: PLC0415

    for field, column in zip(table.schema, table.columns, strict=True):
        if kinds.is_nested(field.type) or kinds.is_binary(field.type):
            raise CadisError(
                f"The column {field.name} of {shown(path)} has type {field.type}, which is neither "
                "numbers nor words; leave it out of the file."
            )
        yield ["" if value is None else str(value) for value in column.to_pylist()]
