"""Examples of whatever a user has: tensors, batches, datasets of torch or of Hugging Face."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, Subset, TensorDataset

from cadis._io import one_line
from cadis.data.dicom import PictureError
from cadis.data.examples import Examples, Scaling
from cadis.data.picture import to_rgb
from cadis.errors import CadisError

_INPUTS = ("image", "img", "picture", "pixel_values", "inputs", "input_ids", "features", "x")
_LABELS = ("label", "labels", "target", "y")
"""What inputs and labels are called where they have names."""


def as_examples(data: object, owner: str) -> Examples:
    """Make examples of what a user has.

    Inputs and labels, batches of them such as a DataLoader's, a ``torch.utils.data.Dataset`` of
    (input, label), or a dataset of Hugging Face's ``datasets``.

    Args:
        data: what the user has; examples, and tensors of a TensorDataset, are taken as they are.
        owner: whose it is, for messages.
    """
    if isinstance(data, Examples):
        return data
    if isinstance(data, TensorDataset):
        if len(data.tensors) != 2:
            raise CadisError(
                f"{owner} has {len(data.tensors)} tensors; give two, inputs and labels."
            )
        return Examples(data.tensors[0], data.tensors[1])
    if isinstance(data, Subset) and isinstance(data.dataset, TensorDataset | Subset):
        return as_examples(data.dataset, owner).take(torch.as_tensor(data.indices))
    if is_hugging_face(data):
        return _of_columns(data, owner)
    if isinstance(data, TorchDataset):
        return _of_items(_items(data, owner), owner)
    return _of_batches(data, owner)


def single(examples: Examples) -> Examples:
    """Return inputs of 64 bits as 32: models have 32."""
    if examples.inputs.dtype != torch.float64:
        return examples
    return Examples(examples.inputs.float(), examples.labels, examples.scaling)


def class_names(data: object) -> tuple[str, ...]:
    """Return the names of the classes, where a dataset knows them; else nothing."""
    if is_hugging_face(data):
        found = [getattr(each, "names", None) for each in _features(data).values()]
        return next((tuple(names) for names in found if names), ())
    names = getattr(data, "classes", ())  # as torchvision's have them
    listed = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return tuple(names) if listed else ()


def is_hugging_face(data: object) -> bool:
    """Return whether it is a dataset of ``datasets``, which need not be installed."""
    kinds = [kind.__module__.partition(".")[0] for kind in type(data).__mro__]
    return "datasets" in kinds and hasattr(data, "column_names")


def _features(data: Any) -> Mapping[str, Any]:
    return getattr(data, "features", None) or {}


def _of_batches(data: Any, owner: str) -> Examples:
    batches = [data] if _is_pair(data) else data
    try:
        pairs = [tuple(map(torch.as_tensor, batch)) for batch in batches]
        inputs, labels = (  # a single pair is not copied
            parts[0] if len(parts) == 1 else torch.cat(parts) for parts in zip(*pairs, strict=True)
        )
    except (TypeError, ValueError, RuntimeError):  # whatever is neither a tensor nor like one
        raise CadisError(
            f"{owner} is not a pair of inputs and labels, nor an iterable of such batches, nor a "
            "dataset of torch or Hugging Face; make pairs of batches that are dicts: "
            "((b['img'], b['label']) for b in loader)."
        ) from None
    return Examples(inputs, labels)


def _is_pair(data: object) -> bool:
    """Return whether these are inputs and labels, and not two batches."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        return False
    return not any(
        isinstance(part, tuple | list) and any(map(torch.is_tensor, part)) for part in data
    )


def _items(data: Any, owner: str) -> list[tuple[Any, Any]]:
    """Return input and label of each sample of a dataset, one after the other."""
    found: list[Any] = []
    try:
        if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
            found += data
        else:
            found += (data[number] for number in range(len(data)))
    except Exception as error:  # whatever a user's code may raise
        raise CadisError(f"{owner} has a sample {len(found)} with: {one_line(error)}.") from error
    return [_pair(item, owner) for item in found]


def _pair(item: Any, owner: str) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        inputs, label = _named(list(item), owner)
        return item[inputs[0]], item[label]
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    raise CadisError(f"{owner} has a sample that is no pair of an input and a label.")


def _of_items(items: Sequence[tuple[Any, Any]], owner: str) -> Examples:
    """Make examples of single samples, which must be alike."""
    if not items:
        return Examples(torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    inputs, labels = zip(*items, strict=True)
    if all(isinstance(each, Image.Image) for each in inputs):
        return _of_pictures(inputs, _numbers(labels, owner), owner)
    try:
        stacked = torch.stack([torch.as_tensor(each) for each in inputs])
    except (TypeError, ValueError, RuntimeError) as error:
        raise CadisError(
            f"{owner} has inputs that do not make one tensor: {one_line(error)}."
        ) from None
    return Examples(stacked, _numbers(labels, owner))


def _of_columns(data: Any, owner: str) -> Examples:
    """Make examples of a dataset whose columns have names."""
    if data.format["type"] == "custom":  # its own transform makes what is to be taken
        return _of_items([_pair(item, owner) for item in data], owner)
    inputs, label = _named(list(data.column_names), owner, _features(data))
    plain = data.select_columns([*inputs, label]).with_format(None)
    if type(_features(data).get(inputs[0])).__name__ == "Image":
        return _of_items([(item[inputs[0]], item[label]) for item in plain], owner)
    columns = plain.with_format("numpy")[:]
    parts = [np.asarray(columns[name]) for name in inputs]
    if any(part.dtype.kind not in "biuf" for part in parts):
        raise CadisError(
            f"{owner} has inputs that are no numbers of one shape in: {', '.join(inputs)}; make "
            "them such by its map function, words as the numbers of their tokens."
        )
    rows = parts[0] if len(parts) == 1 else np.stack(parts, axis=1).astype(np.float32)
    return Examples(torch.from_numpy(rows), _numbers(columns[label], owner))


def _named(
    names: Sequence[str], owner: str, features: Mapping[str, Any] | None = None
) -> tuple[list[str], str]:
    """Return which columns are inputs, and which is the label."""
    classes = [name for name, kind in (features or {}).items() if hasattr(kind, "names")]
    label = next((name for name in _LABELS if name in names), None)
    label = label or (classes[0] if len(classes) == 1 else None)
    rest = [name for name in names if name != label]
    if label is None or not rest:
        raise CadisError(
            f"{owner} has the columns {', '.join(names)}; call one of them label, and have "
            "another with inputs."
        )
    named = next((name for name in _INPUTS if name in rest), None)
    return [named] if named else rest, label


def _numbers(labels: Iterable[Any], owner: str) -> Tensor:
    """Return numbers of classes, (n,)."""
    try:
        return torch.as_tensor(np.asarray([int(label) for label in labels], dtype=np.int64))
    except (TypeError, ValueError):
        raise CadisError(
            f"{owner} has labels that are no class numbers; number the classes from 0."
        ) from None


def _of_pictures(pictures: Sequence[Image.Image], labels: Tensor, owner: str) -> Examples:
    """Make examples of pictures of one size, grey if all are, else RGB; scaled to 0 to 1."""
    grey = all(picture.mode == "L" for picture in pictures)
    if len({picture.size for picture in pictures}) > 1:
        raise CadisError(f"{owner} has pictures of several sizes; resize them all to one.")
    try:
        plain = [np.asarray(p if grey else to_rgb(p, p)) for p in pictures]
    except PictureError as error:
        raise CadisError(f"{owner} has a picture that cannot be used: {error}.") from None
    pixels = torch.from_numpy(np.stack(plain))
    channels = 1 if grey else 3
    ordered = pixels[:, None] if grey else pixels.permute(0, 3, 1, 2)
    return Examples(ordered, labels, Scaling((0.0,) * channels, (1.0,) * channels))
