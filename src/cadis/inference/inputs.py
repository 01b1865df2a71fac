"""Inputs of a prediction in batches: images, rows of a table, or tensors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from cadis._io import Callbacks, check_list, check_path, is_file, is_folder, to_printable
from cadis.data import (
    TABLE_SUFFIXES,
    ImageError,
    ImagePreprocessing,
    TablePreprocessing,
    find_images,
    read_image,
    read_table,
)
from cadis.errors import CadisError
from cadis.store import ModelDescription

_BATCH_SIZE = 64
"""Number of inputs that the model processes at once."""

_MAX_ROWS = 1_000_000_000
"""Maximum number of rows of a table in Python; a generator may be endless."""

_LABEL_COLUMN = "label"
"""Default title of the column with the true classes."""


@dataclass(frozen=True)
class RawBatch:
    """A batch of raw inputs.

    Attributes:
        names: name of each input.
        raw: the inputs before scaling, (n, ...).
        truths: true class of each input; None if it is unknown.
    """

    names: list[str]
    raw: Tensor
    truths: list[str | None]


def read_batches(
    inputs: Any, description: ModelDescription, callbacks: Callbacks, label: str | None = None
) -> Iterator[RawBatch]:
    """Yield the inputs in batches; for the arguments see :meth:`Predictor.iter_predictions`."""
    if isinstance(inputs, Tensor | np.ndarray):
        return _batch_tensor(_to_tensor(inputs))
    if isinstance(inputs, str | PathLike):
        path = check_path("inputs", inputs)
        if path.suffix.lower() in TABLE_SUFFIXES:
            cells, unit = read_table(path), "row" if path.suffix.lower() == ".parquet" else "line"
            numbers, name = cells.index.tolist(), to_printable(path)
            return _batch_table(
                cells, description, label, lambda row: f"{name}, {unit} {numbers[row]}"
            )
        return _batch_images(*_list_images(path), description, callbacks)
    if isinstance(inputs, Mapping) or hasattr(inputs, "columns"):
        columns = _to_columns(inputs)
        return _batch_table(columns, description, label, lambda row: f"row {row + 1}")
    paths = [check_path("An image", path) for path in check_list("inputs", inputs)]
    if not paths:
        raise CadisError("The list of images is empty; give at least one path.")
    return _batch_images(paths, [str(path) for path in paths], description, callbacks)


def check_tensor(raw: object) -> None:
    """Raise an error unless raw inputs are a plain tensor of numbers with one row per input."""
    if not isinstance(raw, Tensor):
        raise CadisError(f"Give a tensor of raw inputs, not a {type(raw).__name__}.")
    if raw.layout != torch.strided or raw.is_meta or raw.is_complex() or not raw.dim():
        raise CadisError(
            f"Give a dense tensor of real numbers, with one row per input, not one of shape "
            f"{tuple(raw.shape)}, type {raw.dtype} and layout {raw.layout} on {raw.device}."
        )


def _to_tensor(inputs: Any) -> Tensor:
    """Return an array or tensor as a tensor with at least one row."""
    try:
        tensor = torch.as_tensor(inputs)
    except TypeError:
        raise CadisError(
            f"Give an array of numbers, not of type {inputs.dtype}; a table is a data frame, or a "
            "dict of columns."
        ) from None
    check_tensor(tensor)
    if not len(tensor):
        raise CadisError(
            f"The inputs have shape {tuple(tensor.shape)}; give at least one row, as (n, ...)."
        )
    return tensor


def _to_columns(table: Any) -> dict[str, list[str]]:
    """Return the columns of a mapping or a data frame as texts; None becomes an empty text."""
    titles = table if isinstance(table, Mapping) else table.columns
    columns = {
        str(title): [
            "" if v is None else str(v) for v in check_list(f"Column {title}", column, _MAX_ROWS)
        ]
        for title, column in ((title, table[title]) for title in titles)
    }
    for (title, cells), (other, others) in pairwise(columns.items()):
        if len(cells) != len(others):
            raise CadisError(
                f"The columns {title} and {other} have {len(cells)} and {len(others)} values; give "
                "each column a value, or None, in every row."
            )
    return columns


def _batch_tensor(raw: Tensor, truths: Sequence[str | None] = ()) -> Iterator[RawBatch]:
    """Yield rows in batches. The name of a row is its number, from 1."""
    labels = list(truths) or [None] * len(raw)
    for start in range(0, len(raw), _BATCH_SIZE):
        rows = slice(start, min(start + _BATCH_SIZE, len(raw)))
        names = [str(number + 1) for number in range(rows.start, rows.stop)]
        yield RawBatch(names, raw[rows], labels[rows])


def _batch_table(
    table: Mapping[str, Sequence[str]],
    description: ModelDescription,
    label: str | None,
    locate: Callable[[int], str],
) -> Iterator[RawBatch]:
    """Yield encoded rows in batches; ``locate`` returns the file and line of a row, as text."""
    preprocessing = description.inputs.preprocessing if description.inputs else None
    if not isinstance(preprocessing, TablePreprocessing):
        raise CadisError(f"The model does not take tables, but {_describe_inputs(description)}.")
    if label is not None and label not in table:
        raise CadisError(f"The table has no column {label}; it has: {', '.join(table)}.")
    preprocessing.check_known(table, locate)
    rows = preprocessing.encode(table)
    if not len(rows):
        raise CadisError("The table has no rows; give at least one.")
    inputs = {column.name for column in preprocessing.columns}
    default = str(description.training.get("label_column") or _LABEL_COLUMN)
    column = label or (default if default in table and default not in inputs else None)
    truths = () if column is None else [_to_class(value, description) for value in table[column]]
    return _batch_tensor(rows, truths)


def _list_images(path: Path) -> tuple[list[Path], list[str]]:
    """Return the paths and names of the images in a folder, or of a single image."""
    if is_folder(path):
        paths = find_images(path)
        if not paths:
            raise CadisError(f"There are no images in {to_printable(path)}.")
        return paths, [to_printable(image.relative_to(path).as_posix()) for image in paths]
    if not is_file(path):
        raise CadisError(f"There is no image, folder or table {to_printable(path)}.")
    return [path], [to_printable(path)]


def _batch_images(
    paths: Sequence[Path], names: Sequence[str], description: ModelDescription, callbacks: Callbacks
) -> Iterator[RawBatch]:
    """Yield images in batches. Images that cannot be read are skipped with a message."""
    preprocessing = description.inputs.preprocessing if description.inputs else None
    if not isinstance(preprocessing, ImagePreprocessing):
        raise CadisError(f"The model does not take images, but {_describe_inputs(description)}.")
    for start in range(0, len(paths), _BATCH_SIZE):
        batch_names, truths, pixels = [], [], []
        for path, name in list(zip(paths, names, strict=True))[start : start + _BATCH_SIZE]:
            try:
                pixels.append(_read_pixels(path, preprocessing))
            except ImageError as error:
                callbacks.say(f"Skipped {name}: {error}.")
                continue
            batch_names.append(name)
            truths.append(_to_class(path.parent.name, description))
        callbacks.progress("Predicting", min(start + _BATCH_SIZE, len(paths)), len(paths))
        if pixels:
            yield RawBatch(batch_names, torch.stack(pixels), truths)


def _read_pixels(path: Path, preprocessing: ImagePreprocessing) -> Tensor:
    """Return an image in the size of the training data, as uint8, (channels, height, width)."""
    image = Image.fromarray(read_image(path, max(preprocessing.height, preprocessing.width)).pixels)
    size = preprocessing.width, preprocessing.height
    if image.size != size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    is_gray = preprocessing.channels == 1
    array = np.array(image.convert("L"))[None] if is_gray else np.array(image).transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(array))


def _to_class(text: str, description: ModelDescription) -> str | None:
    """Return the class that a text names, or None; class "1" may be written as "1.0"."""
    name = text.strip()
    if name not in description.classes:
        name = name.removesuffix(".0")
    return name if name in description.classes else None


def _describe_inputs(description: ModelDescription) -> str:
    """Return the type of the model's inputs, for the end of a sentence."""
    preprocessing = description.inputs.preprocessing if description.inputs else None
    if preprocessing is None:
        return "tensors: call it from Python, cadis.load(RUN).predict(tensor)"
    return "tables" if isinstance(preprocessing, TablePreprocessing) else "images"
