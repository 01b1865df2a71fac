"""From a raw input to what a model takes: kept with a model, so that it can be used elsewhere."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from cadis.data.examples import Scaling
from cadis.errors import CadisError

_MISSING = frozenset({"", "na", "n/a", "nan", "-nan", "+nan", "null", "none", "?"})
"""What stands in a table for a value that is not there, in small letters."""


@dataclass(frozen=True)
class PicturePreprocessing:
    """Upright pictures of one size, whose pixels of 0 to 255 are scaled.

    Attributes:
        channels: 3 for red, green and blue, 1 for grey.
        height: pixels to which a picture is resized.
        width: likewise.
        scaling: what makes a model's inputs of pixels.
    """

    kind: ClassVar[str] = "pictures"
    channels: int
    height: int
    width: int
    scaling: Scaling

    def __call__(self, pixels: Tensor) -> Tensor:
        """A model's inputs of pixels, (n, channels, height, width)."""
        return self.scaling(pixels)


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: standardised, and one that is missing takes the mean's place.

    Attributes:
        name: its title in the table.
        mean: over the rows trained on that have it.
        deviation: likewise; 1 if all are equal.
        may_lack: whether rows trained on lack it; a further input then says where it is missing.
    """

    name: str
    mean: float
    deviation: float
    may_lack: bool

    def encode(self, values: Sequence[str]) -> Tensor:
        """The column as inputs, (n, 1) or (n, 2)."""
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
    """A column of words: one input for each of them, all 0 for one that was never trained on.

    Attributes:
        name: its title in the table.
        categories: its words in the rows trained on; "" is a value that is missing.
    """

    name: str
    categories: tuple[str, ...]

    def encode(self, values: Sequence[str]) -> Tensor:
        """The column as inputs, (n, categories)."""
        numbers = {category: number for number, category in enumerate(self.categories)}
        words = ["" if is_missing(value) else value.strip() for value in values]
        inputs = torch.zeros(len(words), len(self.categories))
        known = [(row, numbers[word]) for row, word in enumerate(words) if word in numbers]
        rows, places = torch.tensor(known, dtype=torch.int64).view(-1, 2).unbind(dim=1)
        inputs[rows, places] = 1.0
        return inputs


@dataclass(frozen=True)
class TablePreprocessing:
    """Rows of a table: numbers standardised, words as one input for each that there is.

    Attributes:
        columns: those that are inputs, in the order of the model's inputs.
    """

    kind: ClassVar[str] = "table"
    columns: tuple[NumberColumn | CategoryColumn, ...]

    def encode(self, table: Mapping[str, Sequence[str]]) -> Tensor:
        """A model's inputs of a table's columns by title, (n, inputs)."""
        for column in self.columns:
            if column.name not in table:
                raise CadisError(
                    f"The table has no column {column.name}; it has: {', '.join(table)}."
                )
        return torch.cat([column.encode(table[column.name]) for column in self.columns], dim=1)


Preprocessing: TypeAlias = PicturePreprocessing | TablePreprocessing


def is_missing(value: str) -> bool:
    """Whether a cell of a table says that there is no value."""
    return value.strip().lower() in _MISSING


def number_in(value: str) -> float | None:
    """The number that a cell of a table says, if it is one; 1_000 is none."""
    try:
        return None if "_" in value else float(value)
    except ValueError:
        return None


def to_json(preprocessing: Preprocessing) -> dict[str, Any]:
    """As an object of plain values, with its kind."""
    return {"kind": preprocessing.kind, **asdict(preprocessing)}


def from_json(content: Mapping[str, Any]) -> Preprocessing:
    """What :func:`to_json` has made."""
    if content["kind"] == PicturePreprocessing.kind:
        mean, deviation = (tuple(content["scaling"][name]) for name in ("mean", "deviation"))
        channels, height, width = (content[name] for name in ("channels", "height", "width"))
        return PicturePreprocessing(channels, height, width, Scaling(mean, deviation))
    columns = (
        CategoryColumn(each["name"], tuple(each["categories"]))
        if "categories" in each
        else NumberColumn(**each)
        for each in content["columns"]
    )
    return TablePreprocessing(tuple(columns))
