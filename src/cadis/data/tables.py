"""``csv:PLACE``: a user's tables as a dataset: a file, or a folder of one for each client."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from cadis._io import Callbacks, natural
from cadis.data.examples import Dataset, Examples, positions_by_owner
from cadis.data.holding_out import held_out_tenth
from cadis.data.preprocessing import (
    NumberColumn,
    TablePreprocessing,
    fit_table,
    is_missing,
    number_in,
)
from cadis.data.table_files import TEST, TRAIN, Table, read_tables
from cadis.errors import CadisError

_LABEL, _SPLIT = "label", "split"
"""What the columns are called that say the class, if no other is named, and what is for testing."""

_MOST_CLASSES = 1000
_FEW_ROWS = 20
"""In so few, words may well be different."""

_ALSO_A_CLASS = "none"
"""Stands for a missing value elsewhere, but an outcome may be called so."""


@dataclass(frozen=True)
class TableColumns:
    """What the columns of a table are, by their titles."""

    client: str = ""  # whose a row is; "" if files say so, or nobody
    label: str = ""  # the class; "" is ``label``
    ignored: tuple[str, ...] = ()  # those that are no inputs
    categories: tuple[str, ...] = ()  # those that are categories even if they look like numbers


def load_table(name: str, place: Path, columns: TableColumns, callbacks: Callbacks) -> Dataset:
    """Load the rows of a table, or of all tables in a folder.

    What the columns are (means, deviations, categories) is found in the rows trained on alone. A
    folder has a file for each client, perhaps in ``train`` beside ``test``, or beside a file
    ``test`` that is nobody's.
    """
    columns = replace(columns, label=columns.label or _LABEL)
    rows = _complete(read_tables(place, callbacks), columns, callbacks)
    names = _class_names(rows, columns.label)
    classes = tuple(sorted(set(names), key=natural))
    if not 2 <= len(classes) <= _MOST_CLASSES:
        raise CadisError(
            f"The column {columns.label} has {len(classes):,} classes; name a column "
            f"with 2 to {_MOST_CLASSES:,} of them by --label-column."
        )
    numbers = {each: number for number, each in enumerate(classes)}
    labels = [numbers[each] for each in names]
    train, test = _split(rows, labels, classes, callbacks)
    how = _fit(rows, train, columns, callbacks)
    everything = Examples(how.encode(rows.columns), torch.tensor(labels))
    return Dataset(
        name,
        everything.take(torch.tensor(train)),
        everything.take(torch.tensor(test)),
        classes,
        _owners(rows, train),
        _owners(rows, test),
        how,
    )


def _complete(rows: Table, columns: TableColumns, callbacks: Callbacks) -> Table:
    """Leave out rows that do not say their class or whose they are, and say which those are."""
    if columns.client:
        rows.clients = [*rows.column(columns.client, "--client-column")]
    labels = rows.column(columns.label, "--label-column")
    lacking = {
        n for n, cell in enumerate(labels) if is_missing(cell) and cell.lower() != _ALSO_A_CLASS
    }
    _tell_lacking(rows, lacking, columns.label, callbacks)
    if columns.client:
        clients = rows.columns[columns.client]
        ownerless = {n for n, cell in enumerate(clients) if is_missing(cell)}
        _tell_lacking(rows, ownerless, columns.client, callbacks)
        lacking |= ownerless
    kept = rows.take([n for n in range(len(labels)) if n not in lacking])
    if _SPLIT in rows.columns and _SPLIT not in (*columns.ignored, columns.label, columns.client):
        kept.parts = _parts(kept)
    return kept


def _tell_lacking(rows: Table, lacking: set[int], title: str, callbacks: Callbacks) -> None:
    if lacking:
        number = f"{len(lacking):,} of {len(rows.places):,} rows"
        first = rows.places[min(lacking)]
        callbacks.say(f"Left out {number} that have nothing in the column {title}: {first}, first.")


def _parts(rows: Table) -> list[str | None]:
    """Return what the column ``split`` says."""
    for cell, place in zip(rows.columns[_SPLIT], rows.places, strict=True):
        if cell.lower() not in (TRAIN, TEST):
            raise CadisError(
                f"The column split has {cell!r} ({place}), but says train or test; correct it, "
                "or leave it out by --ignore-columns split."
            )
    return [cell.lower() for cell in rows.columns[_SPLIT]]


def _class_names(rows: Table, title: str) -> list[str]:
    """Return the class of each row: a word, or a whole number, of which 1.0 is one too."""
    numbers = [number_in(cell) for cell in rows.columns[title]]
    if any(number is None for number in numbers):
        return rows.columns[title]
    for number, place in zip(numbers, rows.places, strict=True):
        if number is not None and not number.is_integer():
            raise CadisError(
                f"The column {title} has {number:g} ({place}); classes are words or whole numbers."
            )
    return [str(int(number)) for number in numbers if number is not None]


def _split(
    rows: Table, labels: list[int], classes: Sequence[str], callbacks: Callbacks
) -> tuple[list[int], list[int]]:
    """Return rows to train and to test on: as the data say, else a tenth of each class."""
    apart = torch.tensor([part == TEST for part in rows.parts])
    if not apart.any():
        apart = held_out_tenth(labels, rows.clients)
    train, test = (rows_of.nonzero().flatten().tolist() for rows_of in (~apart, apart))
    if not train or not test:
        raise CadisError("There are too few rows to train on and to test on; add some.")
    for label in sorted({labels[n] for n in train} - {labels[n] for n in test}):
        callbacks.say(f"No row of the class {classes[label]} is left for testing; add some.")
    return train, test


def _fit(
    rows: Table, train: Sequence[int], columns: TableColumns, callbacks: Callbacks
) -> TablePreprocessing:
    """Return how rows become inputs, found in those trained on; it must apply to all rows."""
    for title in columns.ignored:
        rows.column(title, "--ignore-columns")
    for title in columns.categories:
        rows.column(title, "--category-columns")
    no_inputs = {columns.client, columns.label, _SPLIT, *columns.ignored}
    trained = rows.take(train)
    inputs = {title: cells for title, cells in trained.columns.items() if title not in no_inputs}
    how = fit_table(inputs, trained.places, columns.categories)
    fitted = [column.name for column in how.columns]
    if empty := [title for title in inputs if title not in fitted]:
        callbacks.say(f"Columns without any value to train on are left out: {', '.join(empty)}.")
    if not fitted:
        raise CadisError("There is no column left to learn from; give the table some.")
    for column in how.columns:
        if isinstance(column, NumberColumn):
            _check_numbers(rows, column.name)
        elif column.name not in columns.categories:
            _tell_names(column.name, inputs[column.name], callbacks)
    return how


def _tell_names(title: str, cells: Sequence[str], callbacks: Callbacks) -> None:
    """Say it if a column of words looks like a name of its own for each row."""
    times = Counter(cell for cell in cells if not is_missing(cell))
    single = [cell for cell, number in times.items() if number == 1]
    if len(cells) > _FEW_ROWS and 2 * len(single) > len(cells):
        callbacks.say(
            f"The column {title} has a word of its own in {len(single):,} of {len(cells):,} rows, "
            f"such as {single[0]!r}, and an input for each; if these are names or numbers of "
            f"patients, leave it out by --ignore-columns {title}."
        )


def _check_numbers(rows: Table, title: str) -> None:
    """Refuse rows tested on with a word or an infinite number, where those trained on have none."""
    for cell, place in zip(rows.columns[title], rows.places, strict=True):
        number = 0.0 if is_missing(cell) else number_in(cell)
        if number is None or number in (float("inf"), float("-inf")):
            raise CadisError(
                f"The column {title} has {cell!r} ({place}), where all rows trained on have "
                "numbers; leave the cell empty, or name the column by --category-columns "
                f"{title} if its values are words."
            )


def _owners(rows: Table, chosen: Sequence[int]) -> dict[str, Tensor]:
    """Return positions of each client's rows among the chosen ones, in order of their names."""
    found = positions_by_owner([rows.clients[row] for row in chosen])
    return {client: found[client] for client in sorted(found, key=natural)}
