"""``csv:PATH`` and ``parquet:PATH``: a user's tables as a dataset."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cadis._io import Callbacks, natural_key
from cadis.data.holdout import hold_out_tenth_per_class
from cadis.data.preprocessing import (
    NumberColumn,
    TablePreprocessing,
    fit_table,
    is_missing,
    parse_cells,
)
from cadis.data.samples import Dataset, Samples, group_indices_by_client
from cadis.data.table_files import TEST, TRAIN, format_location, read_tables
from cadis.errors import CadisError

if TYPE_CHECKING:
    from pandas import DataFrame, Index, Series

_LABEL, _SPLIT = "label", "split"
"""Default title of the label column, and title of the column that says "train" or "test"."""

_MAX_CLASSES = 1000
_FEW_ROWS = 20
"""Tables with at most this many rows get no warning about values that occur only once."""

_NONE = "none"
"""In the label column, this may be the name of a class; in other columns, it is a missing value."""


@dataclass(frozen=True)
class TableColumns:
    """Titles of the table columns that have a special meaning.

    Attributes:
        client: column with the client of each row; "" if each file is one client, or if a
            partition splits the rows among clients.
        label: column with the class of each row; "" stands for the column ``label``.
        ignored: columns that are not inputs.
        categories: columns whose values are categories even if they are numbers.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from cadis.data import TableColumns, load
        >>> rows = [f"{age},{'ill' if age > 60 else 'well'},{age % 2}" for age in range(40, 80)]
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "patients.csv")
        ...     _ = path.write_text(chr(10).join(["age,diagnosis,site", *rows]))
        ...     columns = TableColumns(client="site", label="diagnosis")
        ...     dataset = load(f"csv:{path}", columns=columns)
        >>> dataset.classes, list(dataset.client_indices)
        (('ill', 'well'), ['0', '1'])
    """

    client: str = ""
    label: str = ""
    ignored: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


def load_table(name: str, path: Path, columns: TableColumns, callbacks: Callbacks) -> Dataset:
    """Load the rows of a table, or of all tables in a folder.

    A folder has one file per client. The test set is in a folder ``test`` beside a folder
    ``train``, in a file named ``test``, or in the rows with "test" in the column ``split``.
    Otherwise a tenth of each class is held out. The preprocessing is fitted to the training rows
    only.
    """
    columns = replace(columns, label=columns.label or _LABEL)
    cells = _drop_incomplete(read_tables(path, callbacks), columns, callbacks)
    is_test = _read_split(cells, columns)
    classes, labels = _read_labels(cells[columns.label])
    clients = cells[columns.client] if columns.client else cells.index.get_level_values("client")
    if not is_test.any():
        is_test = hold_out_tenth_per_class(labels.tolist(), [*clients])
    if is_test.all() or not is_test.any():
        raise CadisError("There are too few rows to train on and to test on; add some.")
    for label in sorted({*labels[~is_test].tolist()} - {*labels[is_test].tolist()}):
        callbacks.say(f"The test set has no row of the class {classes[label]}; add some.")
    preprocessing = _fit_preprocessing(cells, is_test.numpy(), columns, callbacks)
    samples = Samples(preprocessing.encode(cells), labels)
    return Dataset(
        name,
        samples.take(~is_test),
        samples.take(is_test),
        classes,
        _group_by_client(clients, ~is_test),
        _group_by_client(clients, is_test),
        preprocessing,
    )


def _drop_incomplete(
    cells: "DataFrame", columns: TableColumns, callbacks: Callbacks
) -> "DataFrame":
    """Return the rows that have a class and a client; report the others."""
    clients = _get_column(cells, columns.client, "--client-column") if columns.client else None
    labels = _get_column(cells, columns.label, "--label-column")
    is_complete = ~is_missing(labels) | (labels.str.lower() == _NONE)
    _report_dropped(labels, is_complete, callbacks)
    if clients is not None:
        has_client = ~is_missing(clients)
        _report_dropped(clients, has_client, callbacks)
        is_complete &= has_client
    return cells[is_complete]


def _get_column(cells: "DataFrame", title: str, option: str) -> "Series":
    """Return the column that the user named with an option."""
    if title not in cells:
        raise CadisError(
            f"There is no column {title}; name one of these with {option}: {', '.join(cells)}."
        )
    return cells[title]


def _report_dropped(cells: "Series", is_complete: "Series", callbacks: Callbacks) -> None:
    if len(dropped := cells[~is_complete]):
        callbacks.say(
            f"Left out {len(dropped):,} of {len(cells):,} rows, because they have no value in the "
            f"column {cells.name}; the first is {format_location(dropped)}."
        )


def _read_split(cells: "DataFrame", columns: TableColumns) -> Tensor:
    """Return the mask of test rows from the column ``split`` or the file names, (n,), bool."""
    parts = cells.index.get_level_values("part")
    if _SPLIT in cells and _SPLIT not in (*columns.ignored, columns.label, columns.client):
        parts = cells[_SPLIT].str.lower()
        if len(wrong := cells[_SPLIT][~parts.isin([TRAIN, TEST])]):
            raise CadisError(
                f"The column split has {wrong.iloc[0]!r} ({format_location(wrong)}), but "
                "must have train or test; correct it, or ignore the column with --ignore-columns "
                "split."
            )
    return torch.tensor([part == TEST for part in parts])


def _read_labels(cells: "Series") -> tuple[tuple[str, ...], Tensor]:
    """Return the names of the classes, and the labels, (n,)."""
    names = _name_classes(cells)
    classes = tuple(sorted(names.unique(), key=natural_key))
    if not 2 <= len(classes) <= _MAX_CLASSES:
        raise CadisError(
            f"The column {cells.name} has {len(classes):,} classes; use --label-column to name a "
            f"column with 2 to {_MAX_CLASSES:,} classes."
        )
    numbers = {name: number for number, name in enumerate(classes)}
    return classes, torch.tensor([numbers[name] for name in names])


def _name_classes(cells: "Series") -> "Series":
    """Return the class name of each row: text, or an integer, which may be written as 1.0."""
    numbers, _ = parse_cells(cells)
    if np.isnan(numbers).any():
        return cells
    for row in np.flatnonzero(np.isinf(numbers) | (numbers != np.trunc(numbers))).tolist():
        raise CadisError(
            f"The column {cells.name} has {numbers[row]:g} ({format_location(cells, row)}); "
            "classes must be text or integers."
        )
    return cells.map(lambda cell: str(int(float(cell))))


def _fit_preprocessing(
    cells: "DataFrame", is_test: NDArray[np.bool_], columns: TableColumns, callbacks: Callbacks
) -> TablePreprocessing:
    """Fit the preprocessing to the training rows, and check that it applies to the test rows."""
    for title in columns.ignored:
        _get_column(cells, title, "--ignore-columns")
    for title in columns.categories:
        _get_column(cells, title, "--category-columns")
    not_inputs = {columns.client, columns.label, _SPLIT, *columns.ignored}
    inputs = cells.loc[~is_test, [title for title in cells if title not in not_inputs]]
    preprocessing = fit_table(inputs, columns.categories)
    titles = [column.name for column in preprocessing.columns]
    if empty := [title for title in inputs if title not in titles]:
        callbacks.say(f"Left out columns without a value in training rows: {', '.join(empty)}.")
    if not titles:
        raise CadisError("The table has no column with inputs; add at least one.")
    for column in preprocessing.columns:
        if isinstance(column, NumberColumn):
            _check_numbers(cells.loc[is_test, column.name])
        elif column.name not in columns.categories:
            _warn_about_identifiers(inputs[column.name], callbacks)
    return preprocessing


def _warn_about_identifiers(cells: "Series", callbacks: Callbacks) -> None:
    """Warn if most values of a text column occur only once, such as names of patients."""
    unique = cells[~(is_missing(cells) | cells.duplicated(keep=False))]
    if len(cells) > _FEW_ROWS and 2 * len(unique) > len(cells):
        callbacks.say(
            f"In the column {cells.name}, {len(unique):,} of {len(cells):,} rows have a value that "
            f"occurs only once, such as {unique.iloc[0]!r}. Each of these values becomes an input "
            "of the model; if they identify patients (names or IDs), ignore the column with "
            f"--ignore-columns {cells.name}."
        )


def _check_numbers(cells: "Series") -> None:
    """Raise an error if a test row has text or an infinite number in a column of numbers."""
    numbers, missing = parse_cells(cells)
    if len(wrong := cells[~(np.isfinite(numbers) | missing)]):
        raise CadisError(
            f"The column {cells.name} has {wrong.iloc[0]!r} ({format_location(wrong)}), but all "
            "training rows have numbers; leave the cell empty, or use --category-columns "
            f"{cells.name} if its values are categories."
        )


def _group_by_client(clients: "Index | Series", rows: Tensor) -> dict[str, Tensor]:
    """Select rows, and return the indices of each client's rows in this selection.

    Clients are in natural order.

    Args:
        clients: client of each row before the selection; "" for none.
        rows: mask of the rows to select, (n,), bool.
    """
    groups = group_indices_by_client([client or None for client in clients[rows.numpy()]])
    return {client: groups[client] for client in sorted(groups, key=natural_key)}
