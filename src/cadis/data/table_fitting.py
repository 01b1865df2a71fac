"""What a table's columns are, found in the rows that are trained on and in no others."""

import math
from collections.abc import Collection, Mapping, Sequence

import torch

from cadis._io import natural
from cadis.data.preprocessing import (
    CategoryColumn,
    NumberColumn,
    TablePreprocessing,
    is_missing,
    number_in,
)
from cadis.errors import CadisError

_MOST_CATEGORIES = 1000
"""A column of more words is a mistake: a model would have an input for each of them."""

_MOSTLY, _HANDFUL = 0.9, 5
"""Where this share of a column are numbers, and so many, any word in it is taken for a mistake."""


def fitted_table(
    columns: Mapping[str, Sequence[str]],
    places: Sequence[str],
    as_categories: Collection[str] = (),
) -> tuple[TablePreprocessing, list[str]]:
    """How rows become a model's inputs.

    A column is one of numbers if all its values are; else it is one of categories, unless nearly
    all are numbers, when it is refused.

    Args:
        columns: the cells of the rows trained on, by title.
        places: where each row is, to be named.
        as_categories: titles of columns that are categories even if they look like numbers.

    Returns:
        It, and the titles of columns without a single value, which are no inputs.
    """
    empty = [title for title, cells in columns.items() if all(map(is_missing, cells))]
    fitted = [
        _fitted(title, cells, places, title in as_categories)
        for title, cells in columns.items()
        if title not in empty
    ]
    return TablePreprocessing(tuple(fitted)), empty


def _fitted(
    title: str, cells: Sequence[str], places: Sequence[str], as_category: bool
) -> NumberColumn | CategoryColumn:
    present = {n: cell for n, cell in enumerate(cells) if not is_missing(cell)}
    lacks = len(present) < len(cells)
    if not as_category:
        numbers = {n: number_in(cell) for n, cell in present.items()}
        found = {n: each for n, each in numbers.items() if each is not None and math.isfinite(each)}
        if len(found) == len(present):
            return _fitted_numbers(title, found, places, lacks)
        _check_words(title, present, places)
    words = sorted(set(present.values()), key=natural)
    if len(words) > _MOST_CATEGORIES:
        first = next(iter(present))
        raise CadisError(
            f"The column {title} has {len(words):,} different words such as {present[first]!r} "
            f"({places[first]}); if it is a name or a number of its own for each row, leave it out "
            f"by --ignore-columns {title}."
        )
    return CategoryColumn(title, (*words, *([""] if lacks else [])))


def _fitted_numbers(
    title: str, found: Mapping[int, float], places: Sequence[str], lacks: bool
) -> NumberColumn:
    values = torch.tensor([*found.values()], dtype=torch.float64)
    deviation = float(values.std(correction=0)) or 1.0
    if not math.isfinite(deviation):
        largest = max(found, key=lambda n: abs(found[n]))
        raise CadisError(
            f"The column {title} has numbers that are too large, such as {found[largest]:g} "
            f"({places[largest]}); scale it down."
        )
    return NumberColumn(title, float(values.mean()), deviation, lacks)


def _check_words(title: str, present: Mapping[int, str], places: Sequence[str]) -> None:
    """Refuse what is meant as numbers: written in another way, or with a word among them."""
    numbers = {n: number_in(cell.replace(",", ".")) for n, cell in present.items()}
    words = [n for n, number in numbers.items() if number is None]
    count = len(present) - len(words)
    if words and (count < _HANDFUL or count < _MOSTLY * len(present)):
        return
    commas = [n for n, number in numbers.items() if number is not None and "," in present[n]]
    infinite = [n for n, number in numbers.items() if number is not None and math.isinf(number)]
    if commas:
        raise CadisError(
            f"The column {title} has {present[commas[0]]!r} ({places[commas[0]]}), a number with a "
            "comma; write a decimal point, and nothing between thousands."
        )
    if infinite:
        raise CadisError(
            f"The column {title} has {present[infinite[0]]!r} ({places[infinite[0]]}), which is "
            "infinite; write what was measured, or leave the cell empty."
        )
    raise CadisError(
        f"The column {title} has {present[words[0]]!r} ({places[words[0]]}), but {count:,} of "
        f"{len(present):,} values are numbers; leave such cells empty, or name the column by "
        f"--category-columns {title} if its values are words."
    )
