"""Preprocessing of raw inputs; it is stored with the model, which needs it for predictions.

The preprocessing of a table is fitted to the training rows only.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cadis._io import check_memory, natural_key
from cadis.data.samples import Scaling
from cadis.data.table_files import format_location
from cadis.errors import CadisError

if TYPE_CHECKING:
    from pandas import DataFrame, Series

_MISSING = frozenset({"", "na", "n/a", "nan", "-nan", "+nan", "null", "none", "?"})
"""Contents of cells that stand for a missing value, in lower case."""

_MAX_CATEGORIES = 1000
"""Maximum number of categories of a column: each category is one input of the model."""

MAX_DEVIATIONS = 1_000_000
"""Largest distance of a number from the mean in standard deviations, for a prediction."""

_MAX_LISTED = 10
"""Maximum number of categories in an error message."""

_ENCODING_BYTES = 13
"""Memory of one input of one row: two copies as float32, a mask, and a copy of the test rows."""

_MOST_SHARE, _MOST_COUNT = 0.9, 5
"""A column with text is reported as an error if at least this share of its values, and at least
this many values, are numbers: the text is then probably a mistake."""


@dataclass(frozen=True)
class ImagePreprocessing:
    """Preprocessing of images: resize upright images to one size, and scale their pixels.

    Example:
        >>> import torch
        >>> from cadis.data import ImagePreprocessing, Scaling
        >>> preprocessing = ImagePreprocessing(1, 8, 8, Scaling((0.5,), (0.5,)))
        >>> preprocessing(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape
        torch.Size([2, 1, 8, 8])
    """

    kind: ClassVar[str] = "pictures"
    channels: int  # 3 for RGB, 1 for grayscale
    height: int
    width: int
    scaling: Scaling

    def __call__(self, pixels: Tensor) -> Tensor:
        """Return inputs of a model, float32, of the same shape (n, channels, height, width).

        Args:
            pixels: values from 0 to 255, (n, channels, height, width).
        """
        return self.scaling(pixels)


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, which are standardized; the mean replaces missing values.

    Example:
        >>> from cadis.data import NumberColumn
        >>> column = NumberColumn("age", mean=50.0, deviation=10.0, may_lack=False)
        >>> column.encode(["60", "40"]).tolist()
        [[1.0], [-1.0]]
    """

    name: str
    mean: float  # over the training rows with a value
    deviation: float  # standard deviation over the training rows with a value; 1 if it is 0
    may_lack: bool  # whether values may be missing; a second input then is 1 for a missing value

    @property
    def num_inputs(self) -> int:
        """Number of inputs of the model."""
        return 2 if self.may_lack else 1

    def find_unknown(self, cells: Sequence[str]) -> tuple[int, str] | None:
        """Return the index of the first cell unlike all training rows, and a description of it."""
        numbers, missing = parse_cells(cells)
        with np.errstate(over="ignore"):
            is_near = np.abs((numbers - self.mean) / self.deviation) <= MAX_DEVIATIONS
        for index in np.flatnonzero(~(is_near | (missing & self.may_lack))).tolist():
            if missing[index]:
                return index, "no value, but all training rows have one"
            text = f"{[*cells][index]!r}, "
            if not np.isfinite(numbers[index]):
                return index, text + "which is not a finite number"
            return index, text + (
                f"more than {MAX_DEVIATIONS:,} standard deviations from the mean of the training "
                f"rows, {self.mean:.4g}"
            )
        return None

    def encode(self, cells: Sequence[str]) -> Tensor:
        """Return the inputs of a model, (n, 1), or (n, 2) if values may be missing."""
        numbers, missing = parse_cells(cells)
        for index in np.flatnonzero(~(np.isfinite(numbers) | missing)):
            problem = "is infinite" if np.isinf(numbers[index]) else "is not a number"
            raise CadisError(f"The column {self.name} has {[*cells][index]!r}, which {problem}.")
        scaled = np.where(missing, 0.0, (numbers - self.mean) / self.deviation)
        parts = [scaled, missing] if self.may_lack else [scaled]
        return torch.from_numpy(np.stack(parts, axis=1)).float()


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories, which are one-hot encoded; an unknown category is encoded as zeros.

    Example:
        >>> from cadis.data import CategoryColumn
        >>> column = CategoryColumn("sex", ("f", "m"))
        >>> column.encode(["m", "x"]).tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """

    name: str
    categories: tuple[str, ...]  # values of the training rows; "" stands for a missing value

    @property
    def num_inputs(self) -> int:
        """Number of inputs of the model."""
        return len(self.categories)

    def find_unknown(self, cells: Sequence[str]) -> tuple[int, str] | None:
        """Return the index of the first cell unlike all training rows, and a description of it."""
        for index in (self._find_codes(cells) < 0).nonzero()[:1, 0].tolist():
            if is_missing([cell := [*cells][index]])[0]:
                return index, "no value, but all training rows have one"
            known = ", ".join(self.categories[:_MAX_LISTED])
            return index, f"{cell!r}, which is not in the training rows (they have: {known})"
        return None

    def encode(self, cells: Sequence[str]) -> Tensor:
        """Return the inputs of a model, (n, categories)."""
        codes = self._find_codes(cells)
        return (codes[:, None] == torch.arange(len(self.categories))).float()

    def _find_codes(self, cells: Sequence[str]) -> Tensor:
        """Return the index of the category of each cell, -1 for an unknown one, (n,)."""
        indices = {category: index for index, category in enumerate(self.categories)}
        words = np.where(is_missing(cells), "", np.array(cells, dtype=object))
        return torch.tensor([indices.get(word.strip(), -1) for word in words], dtype=torch.int64)


@dataclass(frozen=True)
class TablePreprocessing:
    """Preprocessing of tables: standardize numbers, and one-hot encode categories.

    Example:
        >>> from cadis.data import CategoryColumn, NumberColumn, TablePreprocessing
        >>> age = NumberColumn("age", mean=50.0, deviation=10.0, may_lack=False)
        >>> preprocessing = TablePreprocessing((age, CategoryColumn("sex", ("f", "m"))))
        >>> preprocessing.encode({"age": ["60"], "sex": ["f"]}).tolist()
        [[1.0, 1.0, 0.0]]
    """

    kind: ClassVar[str] = "table"
    columns: tuple[NumberColumn | CategoryColumn, ...]  # in the order of the model's inputs

    def check_known(self, table: Mapping[str, Sequence[str]], locate: Callable[[int], str]) -> None:
        """Raise an error for a value unlike all training rows; a model's answer is then arbitrary.

        These are unknown categories, values that are missing although none was missing in training,
        and numbers that are too far from the training rows.

        Args:
            table: cells as strings, as for :meth:`encode`.
            locate: returns the file and line of a row for the error message, given its index.
        """
        self._check_titles(table)
        for column in self.columns:
            if unknown := column.find_unknown(table[column.name]):
                index, problem = unknown
                raise CadisError(
                    f"The column {column.name} has {problem} ({locate(index)}); correct it, or "
                    "leave out the row."
                )

    def _check_titles(self, table: Mapping[str, Sequence[str]]) -> None:
        for column in self.columns:
            if column.name not in table:
                raise CadisError(
                    f"The table has no column {column.name}, only {', '.join(table)}; add it."
                )

    def encode(self, table: Mapping[str, Sequence[str]]) -> Tensor:
        """Return the inputs of a model, (n, inputs).

        Args:
            table: cells as strings: a data frame, or a dict that maps titles to columns.
        """
        self._check_titles(table)
        num_rows = max((len(table[column.name]) for column in self.columns), default=0)
        num_inputs = sum(column.num_inputs for column in self.columns)
        check_memory(
            _ENCODING_BYTES * num_rows * num_inputs,
            f"A table of {num_rows:,} rows with {num_inputs:,} inputs (one for each category)",
            "ignore columns with many categories, or split the table",
        )
        return torch.cat([column.encode(table[column.name]) for column in self.columns], dim=1)


Preprocessing: TypeAlias = ImagePreprocessing | TablePreprocessing


def is_missing(cells: Collection[str]) -> NDArray[np.bool_]:
    """Return the mask of cells that stand for a missing value, (n,), bool."""
    return np.array([cell.strip().lower() in _MISSING for cell in cells], dtype=bool)


def parse_cells(cells: Collection[str]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the number in each cell, NaN for text, and the mask of missing values, both (n,)."""
    array = np.array(cells, dtype=object)
    numbers = _parse_numbers(array)
    missing = np.isnan(numbers)
    missing[missing] = is_missing(array[missing])
    return numbers, missing


def _parse_numbers(cells: NDArray[np.object_]) -> NDArray[np.float64]:
    try:
        if "_" not in "".join(cells):  # Python accepts 1_000 as a number
            return cells.astype(np.float64)
    except ValueError:
        pass  # some cells are not numbers
    numbers = {cell: _parse_number(cell) for cell in set(cells)}
    return np.array([numbers[cell] for cell in cells], dtype=np.float64)


def _parse_number(cell: str) -> float:
    try:
        return math.nan if "_" in cell else float(cell)
    except ValueError:
        return math.nan


def fit_table(cells: "DataFrame", as_categories: Collection[str] = ()) -> TablePreprocessing:
    """Fit the preprocessing of a table.

    A column is numeric if all its values are numbers; otherwise it is categorical. If nearly all
    values are numbers but some are text, an error is raised. A column without values is left out.

    Args:
        cells: cells of the training rows, as strings.
        as_categories: titles of columns that are categorical even if all values are numbers.
    """
    columns = (_fit_column(cells[title], title in as_categories) for title in cells)
    return TablePreprocessing(tuple(column for column in columns if column))


def _fit_column(cells: "Series", as_category: bool) -> NumberColumn | CategoryColumn | None:
    numbers, missing = parse_cells(cells)
    present, numbers = cells[~missing], numbers[~missing]
    may_lack = bool(missing.any())
    if present.empty:
        return None
    if as_category or not _are_numbers(present, numbers):
        return _fit_categories(present, may_lack)
    values = torch.from_numpy(numbers)
    deviation = float(values.std(correction=0)) or 1.0
    if not math.isfinite(deviation):
        largest = int(np.abs(numbers).argmax())
        raise CadisError(
            f"The column {cells.name} has numbers that are too large, such as "
            f"{numbers[largest]:g} ({format_location(present, largest)}); scale it down."
        )
    return NumberColumn(cells.name, float(values.mean()), deviation, may_lack)


def _fit_categories(present: "Series", may_lack: bool) -> CategoryColumn:
    categories = sorted(present.unique(), key=natural_key)
    if len(categories) > _MAX_CATEGORIES:
        raise CadisError(
            f"The column {present.name} has {len(categories):,} different values such as "
            f"{present.iloc[0]!r} ({format_location(present)}); if it identifies a row, ignore it "
            f"with --ignore-columns {present.name}."
        )
    return CategoryColumn(present.name, (*categories, *([""] if may_lack else [])))


def _are_numbers(present: "Series", numbers: NDArray[np.float64]) -> bool:
    """Return whether all cells are finite numbers.

    Raises:
        CadisError: if the column is probably meant to be numeric, but has some text, decimal
            commas or infinite numbers.
    """
    if np.isfinite(numbers).all():
        return True
    numbers, _ = parse_cells(present.str.replace(",", ".", regex=False))
    words = present[np.isnan(numbers)]
    count = len(present) - len(words)
    if len(words) and (count < _MOST_COUNT or count < _MOST_SHARE * len(present)):
        return False
    commas = present[~np.isnan(numbers) & present.str.contains(",", regex=False)]
    infinite = present[np.isinf(numbers)]
    first = next(cells for cells in (commas, infinite, words) if len(cells))
    sentence = f"The column {present.name} has {first.iloc[0]!r} ({format_location(first)}), "
    if first is commas:
        sentence += "a number with a comma; use a decimal point, and no thousands separator."
    elif first is infinite:
        sentence += "which is infinite; enter the measured value, or leave the cell empty."
    else:
        sentence += (
            f"but {count:,} of {len(present):,} values are numbers; leave such cells empty, or "
            f"use --category-columns {present.name} if its values are categories."
        )
    raise CadisError(sentence)


def to_json(preprocessing: Preprocessing) -> dict[str, Any]:
    """Return the preprocessing as a dict of plain values, for JSON.

    Example:
        >>> from cadis.data import ImagePreprocessing, Scaling, from_json, to_json
        >>> preprocessing = ImagePreprocessing(1, 8, 8, Scaling((0.5,), (0.5,)))
        >>> from_json(to_json(preprocessing)) == preprocessing
        True
    """
    return {"kind": preprocessing.kind, **asdict(preprocessing)}


def from_json(content: Mapping[str, Any]) -> Preprocessing:
    """Build the preprocessing from a dict that :func:`to_json` returned."""
    if content["kind"] == ImagePreprocessing.kind:
        scaling = Scaling(**{name: tuple(values) for name, values in content["scaling"].items()})
        height, width = content["height"], content["width"]
        return ImagePreprocessing(content["channels"], height, width, scaling)
    columns = (
        CategoryColumn(column["name"], tuple(column["categories"]))
        if "categories" in column
        else NumberColumn(**column)
        for column in content["columns"]
    )
    return TablePreprocessing(tuple(columns))
