"""What a table's columns are, found in the rows that are trained on and in no others."""

import math
from collections.abc import Collection, Mapping, Sequence

import torch

from cadis.core import CadisError
from cadis.data.naming import natural
from cadis.data.preprocessing import (
    CategoryColumn,
    NumberColumn,
    TablePreprocessing,
    is_missing,
    number_in,
)

_MOST_CATEGORIES = 1000
"""A column of more words is a mistake: a model would have an input for each of them."""


def fitted_table(
    columns: Mapping[str, Sequence[str]], as_categories: Collection[str] = ()
) -> tuple[TablePreprocessing, list[str]]:
    """How rows become a model's inputs.

    A column is one of numbers if all its values are; else it is one of categories.

    Args:
        columns: the cells of the rows trained on, by title.
        as_categories: titles of columns that are categories even if they look like numbers.

    Returns:
        It, and the titles of columns without a single value, which are no inputs.
    """
    empty = [title for title, cells in columns.items() if all(map(is_missing, cells))]
    fitted = [
        _fitted(title, cells, title in as_categories)
        for title, cells in columns.items()
        if title not in empty
    ]
    return TablePreprocessing(tuple(fitted)), empty


def _fitted(title: str, cells: Sequence[str], as_category: bool) -> NumberColumn | CategoryColumn:
    present = [cell for cell in cells if not is_missing(cell)]
    numbers = [] if as_category else [number_in(cell) for cell in present]
    found = [number for number in numbers if number is not None and math.isfinite(number)]
    if found and len(found) == len(numbers):
        values = torch.tensor(found, dtype=torch.float64)
        deviation = float(values.std(correction=0)) or 1.0
        if not math.isfinite(deviation):
            raise CadisError(f"The column {title} has numbers that are too large; scale it down.")
        return NumberColumn(title, float(values.mean()), deviation, len(present) < len(cells))
    if not as_category:
        _check_words(title, present)
    words = sorted(set(present), key=natural)
    if len(words) > _MOST_CATEGORIES:
        raise CadisError(
            f"The column {title} has {len(words):,} different words such as {words[0]!r}; if it is "
            "a name or a number of its own for each row, leave it out by --ignore-columns."
        )
    return CategoryColumn(title, (*words, *([""] if len(present) < len(cells) else [])))


def _check_words(title: str, present: Sequence[str]) -> None:
    """Refuse what looks like numbers, but is written in another way."""
    with_points = [number_in(cell.replace(",", ".")) for cell in present]
    if all(number is not None and math.isfinite(number) for number in with_points):
        raise CadisError(
            f"The column {title} has numbers with a decimal comma; write a decimal point."
        )
    infinite = [cell for cell in present if math.isinf(number_in(cell) or 0.0)]
    if infinite and all(number_in(cell) is not None for cell in present):
        raise CadisError(
            f"The column {title} has {infinite[0]!r}, which is infinite; write what was measured, "
            "or leave the cell empty."
        )
