"""What a model is to predict on: pictures, rows of a table, or tensors; in batches."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from cadis._io import Callbacks, at_home, is_file, is_folder, shown
from cadis.data import (
    TABLE_SUFFIXES,
    PictureError,
    PicturePreprocessing,
    TablePreprocessing,
    find_pictures,
    read_picture,
    read_table,
)
from cadis.errors import CadisError
from cadis.store import ModelDescription

_BATCH = 64
"""So many inputs go through a model at once."""

_LABEL = "label"
"""A column of this title has the true classes, unless another one was trained on or is named."""


@dataclass(frozen=True)
class RawBatch:
    """Some inputs.

    Attributes:
        names: what each is called.
        raw: as a predictor takes them, (n, ...).
        truths: the class of each, where it is known.
    """

    names: list[str]
    raw: Tensor
    truths: list[str | None]


def raw_batches(
    inputs: Any, description: ModelDescription, callbacks: Callbacks, label: str | None = None
) -> Iterator[RawBatch]:
    """Return the inputs that a user has, in batches; see :meth:`Predictor.predictions`."""
    if isinstance(inputs, Tensor | np.ndarray):
        return _of_tensor(torch.as_tensor(inputs))
    if isinstance(inputs, str | Path):
        place = at_home(inputs)
        if place.suffix.lower() in TABLE_SUFFIXES:
            return _of_table(read_table(place).columns, description, label)
        return _of_pictures(*_pictures_at(place), description, callbacks)
    if isinstance(inputs, Mapping) or hasattr(inputs, "columns"):
        return _of_table(_columns(inputs), description, label)
    paths = [at_home(path) for path in inputs]
    return _of_pictures(paths, [str(path) for path in paths], description, callbacks)


def _columns(table: Any) -> dict[str, list[str]]:
    """Return the columns of a mapping or a data frame as text; what is missing is empty."""
    titles = table if isinstance(table, Mapping) else table.columns
    found = {str(title): ["" if v is None else str(v) for v in table[title]] for title in titles}
    for (title, cells), (other, others) in pairwise(found.items()):
        if len(cells) != len(others):
            raise CadisError(
                f"The columns {title} and {other} have {len(cells)} and {len(others)} values; give "
                "each a value, or None, in every row."
            )
    return found


def _of_tensor(raw: Tensor, truths: Sequence[str | None] = ()) -> Iterator[RawBatch]:
    """Yield rows in batches; each has its number, from 1, as its name."""
    known = list(truths) or [None] * len(raw)
    for start in range(0, len(raw), _BATCH):
        rows = slice(start, min(start + _BATCH, len(raw)))
        names = [str(number + 1) for number in range(rows.start, rows.stop)]
        yield RawBatch(names, raw[rows], known[rows])


def _of_table(
    table: Mapping[str, Sequence[str]], description: ModelDescription, label: str | None
) -> Iterator[RawBatch]:
    how = description.inputs.preprocessing if description.inputs else None
    if not isinstance(how, TablePreprocessing):
        raise CadisError(f"The model does not take tables, but {_taken(description)}.")
    if label is not None and label not in table:
        raise CadisError(f"The table has no column {label}; it has: {', '.join(table)}.")
    rows = how.encode(table)
    inputs = {column.name for column in how.columns}
    usual = str(description.training.get("label_column") or _LABEL)
    found = label or (usual if usual in table and usual not in inputs else None)
    truths = () if found is None else [_class(value, description) for value in table[found]]
    return _of_tensor(rows, truths)


def _pictures_at(place: Path) -> tuple[list[Path], list[str]]:
    """Return the pictures in a folder, with their names in it; or the only one."""
    if is_folder(place):
        paths = find_pictures(place)
        if not paths:
            raise CadisError(f"There are no pictures in {shown(place)}.")
        return paths, [shown(path.relative_to(place).as_posix()) for path in paths]
    if not is_file(place):
        raise CadisError(f"There is no picture, folder or table {shown(place)}.")
    return [place], [shown(place)]


def _of_pictures(
    paths: Sequence[Path], names: Sequence[str], description: ModelDescription, callbacks: Callbacks
) -> Iterator[RawBatch]:
    """Yield pictures in batches; those that cannot be read are named and left out."""
    how = description.inputs.preprocessing if description.inputs else None
    if not isinstance(how, PicturePreprocessing):
        raise CadisError(f"The model does not take pictures, but {_taken(description)}.")
    for start in range(0, len(paths), _BATCH):
        found, truths, pixels = [], [], []
        for path, name in list(zip(paths, names, strict=True))[start : start + _BATCH]:
            try:
                pixels.append(_pixels(path, how))
            except PictureError as error:
                callbacks.say(f"Left out {name}: {error}.")
                continue
            found.append(name)
            truths.append(_class(path.parent.name, description))
        callbacks.progress("Predicting", min(start + _BATCH, len(paths)), len(paths))
        if pixels:
            yield RawBatch(found, torch.stack(pixels), truths)


def _pixels(path: Path, how: PicturePreprocessing) -> Tensor:
    """Return a picture as it was for training, (channels, height, width), bytes."""
    image = Image.fromarray(read_picture(path, max(how.height, how.width)).pixels)
    if image.size != (how.width, how.height):
        image = image.resize((how.width, how.height), Image.Resampling.BILINEAR)
    grey = how.channels == 1
    array = np.array(image.convert("L"))[None] if grey else np.array(image).transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(array))


def _class(word: str, description: ModelDescription) -> str | None:
    """Return a word, if it names a class; numbers may be written as fractions, 1 as 1.0."""
    name = word.strip()
    if name not in description.classes:
        name = name.removesuffix(".0")
    return name if name in description.classes else None


def _taken(description: ModelDescription) -> str:
    """Return what a model takes, for the end of a sentence."""
    how = description.inputs.preprocessing if description.inputs else None
    return how.kind if how else "tensors: call it from Python, cadis.load(RUN).predict(tensor)"
