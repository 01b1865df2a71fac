"""``csv:PLACE``: a user's tables as a dataset: a file, or a folder of one for each client."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cadis._io import Callbacks, natural
from cadis.data.examples import Dataset, Examples, positions_by_owner
from cadis.data.holding_out import held_out
from cadis.data.preprocessing import NumberColumn, TablePreprocessing, is_missing, number_in
from cadis.data.table_fitting import fitted_table
from cadis.data.table_rows import TEST, TRAIN, Rows, read_rows
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
    """What the columns of a table are.

    Attributes:
        client: title of the column that says whose a row is; "" if files do, or nobody.
        label: title of the column of classes; "" is ``label``.
        ignored: titles of columns that are no inputs.
        categories: titles of columns that are categories even if they look like numbers.
    """

    client: str = ""
    label: str = ""
    ignored: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


def load_table(name: str, place: Path, columns: TableColumns, callbacks: Callbacks) -> Dataset:
    """The rows of a table, or of all tables in a folder.

    What the columns are (means, deviations, categories) is found in the rows trained on alone.

    Args:
        name: what the user calls it.
        place: a file; or a folder with a file for each client, perhaps in ``train`` beside
            ``test``, or beside a file ``test`` that is nobody's.
        columns: what they are.
        callbacks: called as it goes on.
    """
    rows = _complete(read_rows(place, columns.client, callbacks), columns, callbacks)
    names = _labels(rows, columns.label or _LABEL)
    classes = tuple(sorted(set(names), key=natural))
    if not 2 <= len(classes) <= _MOST_CLASSES:
        raise CadisError(
            f"The column {columns.label or _LABEL} has {len(classes):,} classes; name a column "
            f"with 2 to {_MOST_CLASSES:,} of them by --label-column."
        )
    numbers = {each: number for number, each in enumerate(classes)}
    labels = [numbers[each] for each in names]
    train, test = _split(rows, labels, callbacks, classes)
    how = _fitted(rows, train, columns, callbacks)
    inputs = how.encode(rows.columns)
    everything = Examples(inputs, torch.tensor(labels))
    return Dataset(
        name,
        everything.take(torch.tensor(train)),
        everything.take(torch.tensor(test)),
        classes,
        _owners(rows, train),
        _owners(rows, test),
        how,
    )


def _complete(rows: Rows, columns: TableColumns, callbacks: Callbacks) -> Rows:
    """Without rows that do not say their class or whose they are; it is said which those are."""
    label = columns.label or _LABEL
    lacking = [_is_unlabelled(cell) for cell in rows.column(label, "--label-column")]
    _tell_lacking(rows, lacking, label, callbacks)
    if columns.client:
        ownerless = [is_missing(cell) for cell in rows.columns[columns.client]]
        _tell_lacking(rows, ownerless, columns.client, callbacks)
        lacking = [one or other for one, other in zip(lacking, ownerless, strict=True)]
    kept = rows.take([n for n, lacks in enumerate(lacking) if not lacks])
    if _SPLIT in rows.columns and _SPLIT not in (*columns.ignored, label, columns.client):
        kept.parts = _parts(kept)
    return kept


def _is_unlabelled(cell: str) -> bool:
    return is_missing(cell) and cell.lower() != _ALSO_A_CLASS


def _tell_lacking(rows: Rows, lacking: Sequence[bool], title: str, callbacks: Callbacks) -> None:
    if any(lacking):
        first = rows.places[lacking.index(True)]
        number = f"{sum(lacking):,} of {len(lacking):,} rows"
        callbacks.say(f"Left out {number} that have nothing in the column {title}: {first}, first.")


def _parts(rows: Rows) -> list[str | None]:
    """What the column ``split`` says."""
    for cell, place in zip(rows.columns[_SPLIT], rows.places, strict=True):
        if cell.lower() not in (TRAIN, TEST):
            raise CadisError(
                f"The column split has {cell!r} ({place}), but says train or test; correct it, "
                "or leave it out by --ignore-columns split."
            )
    return [cell.lower() for cell in rows.columns[_SPLIT]]


def _labels(rows: Rows, title: str) -> list[str]:
    """The class of each row: a word, or a whole number, of which 1.0 is one too."""
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
    rows: Rows, labels: list[int], callbacks: Callbacks, classes: Sequence[str]
) -> tuple[list[int], list[int]]:
    """Rows to train on, and rows to test on: as the data say, else a tenth of each class."""
    held = {n for n, part in enumerate(rows.parts) if part == TEST}
    if not held:
        held = held_out(labels, rows.clients)
    train, test = [n for n in range(len(labels)) if n not in held], sorted(held)
    if not train or not test:
        raise CadisError("There are too few rows to train on and to test on; add some.")
    for label in sorted({labels[n] for n in train} - {labels[n] for n in test}):
        callbacks.say(f"No row of the class {classes[label]} is left for testing; add some.")
    return train, test


def _fitted(
    rows: Rows, train: Sequence[int], columns: TableColumns, callbacks: Callbacks
) -> TablePreprocessing:
    """How rows become inputs, found in those that are trained on; all rows can become some."""
    for title in columns.ignored:
        rows.column(title, "--ignore-columns")
    for title in columns.categories:
        rows.column(title, "--category-columns")
    no_inputs = {columns.client, columns.label or _LABEL, _SPLIT, *columns.ignored}
    inputs = {
        title: [cells[n] for n in train]
        for title, cells in rows.columns.items()
        if title not in no_inputs
    }
    places = [rows.places[n] for n in train]
    how, empty = fitted_table(inputs, places, columns.categories)
    if empty:
        callbacks.say(f"Columns without any value to train on are left out: {', '.join(empty)}.")
    if not how.columns:
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


def _check_numbers(rows: Rows, title: str) -> None:
    """Rows that are tested on may have what those trained on have not."""
    for cell, place in zip(rows.columns[title], rows.places, strict=True):
        number = 0.0 if is_missing(cell) else number_in(cell)
        if number is None or number in (float("inf"), float("-inf")):
            raise CadisError(
                f"The column {title} has {cell!r} ({place}), where all rows trained on have "
                "numbers; leave the cell empty, or name the column by --category-columns "
                f"{title} if its values are words."
            )


def _owners(rows: Rows, chosen: Sequence[int]) -> dict[str, Tensor]:
    """Positions of each client's rows among the chosen ones, in the order of their names."""
    found = positions_by_owner([rows.clients[row] for row in chosen])
    return {client: found[client] for client in sorted(found, key=natural)}
