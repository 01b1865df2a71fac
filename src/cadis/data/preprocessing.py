"""From a raw input to what a model takes: kept with a model, so that it can be used elsewhere.

What a table's columns are is found in the rows that are trained on and in no others.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from cadis._io import natural
from cadis.data.examples import Scaling
from cadis.errors import CadisError

_MISSING = frozenset({"", "na", "n/a", "nan", "-nan", "+nan", "null", "none", "?"})
"""What stands in a table for a value that is not there, in small letters."""

_MOST_CATEGORIES = 1000
"""A column of more words is a mistake: a model would have an input for each of them."""

_MOSTLY, _HANDFUL = 0.9, 5
"""Where this share of a column are numbers, and so many, any word in it is taken for a mistake."""


@dataclass(frozen=True)
class PicturePreprocessing:
    """Upright pictures resized to one size, whose pixels of 0 to 255 are scaled."""

    kind: ClassVar[str] = "pictures"
    channels: int  # 3 for red, green and blue, 1 for grey
    height: int
    width: int
    scaling: Scaling

    def __call__(self, pixels: Tensor) -> Tensor:
        """Return a model's inputs of pixels, (n, channels, height, width)."""
        return self.scaling(pixels)


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: standardised, and the mean takes the place of one that is missing."""

    name: str
    mean: float  # over the rows trained on that have it
    deviation: float  # likewise; 1 if all are equal
    may_lack: bool  # rows trained on lack it; a further input then says where it is missing

    def encode(self, values: Sequence[str]) -> Tensor:
        """Return the column as inputs, (n, 1) or (n, 2)."""
        numbers = torch.tensor([self._number(v) for v in values], dtype=torch.float64)
        lacking = numbers.isnan()
        scaled = ((numbers - self.mean) / self.deviation).masked_fill(lacking, 0.0)
        parts = [scaled, lacking.double()] if self.may_lack else [scaled]
        return torch.stack(parts, dim=1).float()

    def _number(self, value: str) -> float:
        number = math.nan if is_missing(value) else number_in(value)
        if number is None:
            raise CadisError(f"The column {self.name} has {value!r} where a number belongs.")
        if math.isinf(number):
            raise CadisError(f"The column {self.name} has {value!r}, which is infinite.")
        return number


@dataclass(frozen=True)
class CategoryColumn:
    """A column of words: one input for each of them, all 0 for one that was never trained on."""

    name: str
    categories: tuple[str, ...]  # words in the rows trained on; "" is a value that is missing

    def encode(self, values: Sequence[str]) -> Tensor:
        """Return the column as inputs, (n, categories)."""
        numbers = {category: number for number, category in enumerate(self.categories)}
        words = ["" if is_missing(value) else value.strip() for value in values]
        inputs = torch.zeros(len(words), len(self.categories))
        known = [(row, numbers[word]) for row, word in enumerate(words) if word in numbers]
        rows, places = torch.tensor(known, dtype=torch.int64).view(-1, 2).unbind(dim=1)
        inputs[rows, places] = 1.0
        return inputs


@dataclass(frozen=True)
class TablePreprocessing:
    """Rows of a table: numbers standardised, words as one input for each that there is."""

    kind: ClassVar[str] = "table"
    columns: tuple[NumberColumn | CategoryColumn, ...]  # in the order of the model's inputs

    def encode(self, table: Mapping[str, Sequence[str]]) -> Tensor:
        """Return a model's inputs of a table's columns by title, (n, inputs)."""
        for column in self.columns:
            if column.name not in table:
                raise CadisError(
                    f"The table has no column {column.name}; it has: {', '.join(table)}."
                )
        return torch.cat([column.encode(table[column.name]) for column in self.columns], dim=1)


Preprocessing: TypeAlias = PicturePreprocessing | TablePreprocessing


def is_missing(value: str) -> bool:
    """Return whether a cell of a table says that there is no value."""
    return value.strip().lower() in _MISSING


def number_in(value: str) -> float | None:
    """Return the number that a cell of a table says, if it is one; 1_000 is none."""
    try:
        return None if "_" in value else float(value)
    except ValueError:
        return None


def fit_table(
    columns: Mapping[str, Sequence[str]],
    places: Sequence[str],
    as_categories: Collection[str] = (),
) -> TablePreprocessing:
    """Return how rows become a model's inputs.

    A column is one of numbers if all its values are; else it is one of categories, unless nearly
    all are numbers, when it is refused. A column without a single value is no input. The columns
    have the cells of the rows trained on; ``places`` name the rows.
    """
    fitted: list[NumberColumn | CategoryColumn] = []
    for title, cells in columns.items():
        present = {n: cell for n, cell in enumerate(cells) if not is_missing(cell)}
        may_lack = len(present) < len(cells)
        if present and (title in as_categories or not _are_numbers(title, present, places)):
            fitted.append(_fit_categories(title, present, places, may_lack))
        elif present:
            fitted.append(_fit_numbers(title, present, places, may_lack))
    return TablePreprocessing(tuple(fitted))


def _fit_categories(
    title: str, present: Mapping[int, str], places: Sequence[str], may_lack: bool
) -> CategoryColumn:
    words = sorted(set(present.values()), key=natural)
    if len(words) > _MOST_CATEGORIES:
        first = next(iter(present))
        raise CadisError(
            f"The column {title} has {len(words):,} different words such as {present[first]!r} "
            f"({places[first]}); if it is a name or a number of its own for each row, leave it out "
            f"by --ignore-columns {title}."
        )
    return CategoryColumn(title, (*words, *([""] if may_lack else [])))


def _fit_numbers(
    title: str, present: Mapping[int, str], places: Sequence[str], may_lack: bool
) -> NumberColumn:
    found = {n: float(cell) for n, cell in present.items()}
    values = torch.tensor([*found.values()], dtype=torch.float64)
    deviation = float(values.std(correction=0)) or 1.0
    if not math.isfinite(deviation):
        largest = max(found, key=lambda n: abs(found[n]))
        raise CadisError(
            f"The column {title} has numbers that are too large, such as {found[largest]:g} "
            f"({places[largest]}); scale it down."
        )
    return NumberColumn(title, float(values.mean()), deviation, may_lack)


def _are_numbers(title: str, present: Mapping[int, str], places: Sequence[str]) -> bool:
    """Return whether all cells are numbers; refuse what is meant so, but written otherwise."""
    exact = [number_in(cell) for cell in present.values()]
    if all(number is not None and math.isfinite(number) for number in exact):
        return True
    numbers = {n: number_in(cell.replace(",", ".")) for n, cell in present.items()}
    words = [n for n, number in numbers.items() if number is None]
    count = len(present) - len(words)
    if words and (count < _HANDFUL or count < _MOSTLY * len(present)):
        return False
    commas = [n for n, number in numbers.items() if number is not None and "," in present[n]]
    infinite = [n for n, number in numbers.items() if number is not None and math.isinf(number)]
    first = (commas or infinite or words)[0]
    sentence = f"The column {title} has {present[first]!r} ({places[first]}), "
    if commas:
        sentence += "a number with a comma; write a decimal point, and nothing between thousands."
    elif infinite:
        sentence += "which is infinite; write what was measured, or leave the cell empty."
    else:
        sentence += (
            f"but {count:,} of {len(present):,} values are numbers; leave such cells empty, or "
            f"name the column by --category-columns {title} if its values are words."
        )
    raise CadisError(sentence)


def to_json(preprocessing: Preprocessing) -> dict[str, Any]:
    """Return an object of plain values, with its kind."""
    return {"kind": preprocessing.kind, **asdict(preprocessing)}


def from_json(content: Mapping[str, Any]) -> Preprocessing:
    """Return what :func:`to_json` was given."""
    if content["kind"] == PicturePreprocessing.kind:
        scaling = Scaling(**{name: tuple(each) for name, each in content["scaling"].items()})
        height, width = content["height"], content["width"]
        return PicturePreprocessing(content["channels"], height, width, scaling)
    columns = (
        CategoryColumn(each["name"], tuple(each["categories"]))
        if "categories" in each
        else NumberColumn(**each)
        for each in content["columns"]
    )
    return TablePreprocessing(tuple(columns))
