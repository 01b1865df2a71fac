"""The rows of all tables of a user, and what the files' places say of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from cadis._io import Callbacks, is_folder, natural, shown
from cadis.data.table_files import TABLE_SUFFIXES, EmptyTableError, Table, read_table
from cadis.errors import CadisError

TRAIN, TEST = "train", "test"
"""What folders, files, and a column of the split call the parts."""


@dataclass(frozen=True)
class _Source:
    """A file, and what its place says of its rows; None is nothing."""

    path: Path
    client: str | None = None
    part: str | None = None


@dataclass
class Rows:
    """The rows of all files.

    Attributes:
        columns: the cells of each column, by its title.
        places: where each row is, to be named.
        clients: whose each row is; None if nobody's.
        parts: what each row is for, train or test; None if that is not said.
    """

    columns: dict[str, list[str]] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)
    clients: list[str | None] = field(default_factory=list)
    parts: list[str | None] = field(default_factory=list)

    def add(self, table: Table, source: _Source) -> None:
        """Take up the rows of a file."""
        for title, cells in table.columns.items():
            self.columns.setdefault(title, []).extend(cells)
        self.places += [f"{shown(table.path)}, line {line}" for line in table.lines]
        self.clients += [source.client] * len(table.lines)
        self.parts += [source.part] * len(table.lines)

    def take(self, rows: Sequence[int]) -> "Rows":
        """Some of the rows, in that order."""
        columns = {title: [cells[n] for n in rows] for title, cells in self.columns.items()}
        places, clients, parts = self.places, self.clients, self.parts
        return Rows(
            columns,
            [places[n] for n in rows],
            [clients[n] for n in rows],
            [parts[n] for n in rows],
        )

    def column(self, title: str, option: str) -> list[str]:
        """A column that the user names by an option."""
        if title not in self.columns:
            raise CadisError(
                f"There is no column {title}; name one of {', '.join(self.columns)} by {option}."
            )
        return self.columns[title]


def read_rows(place: Path, client_column: str, callbacks: Callbacks) -> Rows:
    """All rows, with whose they are and what they are for, where the files' places say so."""
    rows, first = Rows(), None
    for source in _sources(place, callbacks):
        table = _with_rows(source.path)
        if table is None:
            callbacks.say(f"{shown(source.path)} has no rows; it is left out.")
            continue
        first = first or table
        if set(table.columns) != set(first.columns):
            odd = min(set(table.columns) ^ set(first.columns))
            having, lacking = (table, first) if odd in table.columns else (first, table)
            raise CadisError(
                f"{shown(having.path)} has a column {odd}, which {shown(lacking.path)} lacks; give "
                "all tables the same columns."
            )
        rows.add(table, source)
    if first is None:
        raise CadisError(
            f"There are no rows in {shown(place)}; a table has the columns' titles in its first "
            "line, and a row in each other."
        )
    if client_column:
        rows.clients = [*rows.column(client_column, "--client-column")]
    return rows


def _with_rows(path: Path) -> Table | None:
    """A file's table, if it has any rows."""
    try:
        table = read_table(path)
    except EmptyTableError:
        return None
    return table if table.lines else None


def _sources(place: Path, callbacks: Callbacks) -> list[_Source]:
    if not is_folder(place):
        if place.suffix.lower() not in TABLE_SUFFIXES:
            raise CadisError(
                f"{shown(place)} is neither a folder nor a table, which is called "
                f"{', '.join(f'NAME{suffix}' for suffix in TABLE_SUFFIXES)}."
            )
        return [_Source(place)]
    folders = [(place / part, part) for part in (TRAIN, TEST) if is_folder(place / part)]
    if len(folders) == 2:
        return [s for folder, part in folders for s in _files_of(folder, part, callbacks)]
    found = _files_of(place, None, callbacks)
    if any(source.client == TEST for source in found):
        callbacks.say(f"The table called test in {shown(place)} is the test set, and no client's.")
        found = [
            _Source(s.path, None, TEST) if s.client == TEST else _Source(s.path, s.client, TRAIN)
            for s in found
        ]
    trained = [source for source in found if source.part != TEST]
    if [source.client for source in trained] == [TRAIN]:  # beside test, or alone
        found = [_Source(source.path, None, source.part) for source in found]
    return found


def _files_of(folder: Path, part: str | None, callbacks: Callbacks) -> list[_Source]:
    """A table for each client, in the order of their names."""
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
    return [_Source(path, shown(path.stem), part) for path in found]
