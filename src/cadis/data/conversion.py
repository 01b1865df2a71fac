"""Conversion of users' data to samples: tensors, batches, torch and Hugging Face datasets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, Subset, TensorDataset

from cadis._io import check_memory, format_error
from cadis.data.dicom import ImageError
from cadis.data.image_reading import to_rgb
from cadis.data.samples import Samples, Scaling
from cadis.errors import CadisError

_INPUT_COLUMNS = ("image", "img", "picture", "pixel_values", "inputs", "input_ids", "features", "x")
_LABEL_COLUMNS = ("label", "labels", "target", "y")
"""Usual names of columns with inputs and with labels; the first name that exists is used."""

_OBJECT_BYTES = 100
"""Approximate memory of a Python object."""

_CHECK_EVERY = 10_000_000
"""Number of bytes between two checks of the memory."""


def as_samples(data: object, subject: str) -> Samples:
    """Convert a user's data to samples.

    Args:
        data: one of: a pair of inputs (n, ...) and labels (n,); an iterable of such batches, for
            example a DataLoader; a ``torch.utils.data.Dataset`` of (input, label); a dataset of
            the Hugging Face package ``datasets``; or :class:`Samples`, which are returned
            unchanged. Tensors of a TensorDataset are not copied.
        subject: subject of error messages, for example ``"Client 3"``.

    Example:
        >>> import torch
        >>> from cadis.data import as_samples
        >>> samples = as_samples(([[0.0, 1.0], [2.0, 3.0]], [0, 1]), "Client 0")
        >>> samples.inputs.shape
        torch.Size([2, 2])
    """
    if isinstance(data, Samples):
        return data
    if isinstance(data, TensorDataset):
        if len(data.tensors) != 2:
            raise CadisError(
                f"{subject} has {len(data.tensors)} tensors; give two, inputs and labels."
            )
        return Samples(data.tensors[0], data.tensors[1])
    if isinstance(data, Subset) and isinstance(data.dataset, TensorDataset | Subset):
        return as_samples(data.dataset, subject).take(torch.as_tensor(data.indices))
    if is_hugging_face(data):
        return _convert_columns(data, subject)
    if isinstance(data, TorchDataset):
        return _convert_items(_read_items(data, subject), subject)
    return _convert_batches(data, subject)


def to_float32(samples: Samples) -> Samples:
    """Convert float64 inputs to float32, the type of most models; keep other types."""
    if samples.inputs.dtype != torch.float64:
        return samples
    return Samples(samples.inputs.float(), samples.labels, samples.scaling)


def get_class_names(data: object) -> tuple[str, ...]:
    """Return the names of the classes of a torchvision or Hugging Face dataset; () if unknown."""
    if is_hugging_face(data):
        all_names = [getattr(feature, "names", None) for feature in _get_features(data).values()]
        return next((tuple(names) for names in all_names if names), ())
    names = getattr(data, "classes", ())  # torchvision datasets
    is_valid = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return tuple(names) if is_valid else ()


def is_hugging_face(data: object) -> bool:
    """Return whether the data are a dataset of ``datasets``, without importing that package."""
    packages = [cls.__module__.partition(".")[0] for cls in type(data).__mro__]
    return "datasets" in packages and hasattr(data, "column_names")


def _get_features(data: Any) -> Mapping[str, Any]:
    return getattr(data, "features", None) or {}


def _convert_batches(data: Any, subject: str) -> Samples:
    batches = [data] if _is_pair(data) else data
    try:
        pairs = [tuple(map(torch.as_tensor, batch)) for batch in _limit_memory(batches, subject)]
        inputs, labels = (  # a single pair is not copied
            parts[0] if len(parts) == 1 else torch.cat(parts) for parts in zip(*pairs, strict=True)
        )
    except CadisError:
        raise
    except (TypeError, ValueError, RuntimeError):
        raise CadisError(
            f"{subject} is not a pair of inputs and labels, nor an iterable of such batches, nor a "
            "dataset of torch or Hugging Face; convert batches that are dicts to pairs: "
            "((b['img'], b['label']) for b in loader)."
        ) from None
    return Samples(inputs, labels)


def _limit_memory(items: Iterable[Any], subject: str) -> Iterator[Any]:
    """Yield the items of an iterable, which may be endless, while there is memory for them."""
    nbytes, checked = 0, 0
    for item in items:
        nbytes += _OBJECT_BYTES
        if isinstance(item, tuple | list):
            nbytes += sum(getattr(part, "nbytes", _OBJECT_BYTES) for part in item)
        if nbytes - checked > _CHECK_EVERY:
            check_memory(nbytes, subject, "give it fewer samples")
            checked = nbytes
        yield item


def _is_pair(data: object) -> bool:
    """Return whether the data are a pair of inputs and labels, and not a list of two batches."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        return False
    return not any(
        isinstance(part, tuple | list) and any(map(torch.is_tensor, part)) for part in data
    )


def _read_items(data: Any, subject: str) -> list[tuple[Any, Any]]:
    """Return the input and the label of each sample of a dataset."""
    items: list[Any] = []
    try:
        is_stream = isinstance(data, IterableDataset) or not hasattr(data, "__len__")
        samples = data if is_stream else (data[index] for index in range(len(data)))
        for item in _limit_memory(samples, subject):
            items.append(item)
    except CadisError:
        raise
    except Exception as error:  # the user's code may raise any exception
        raise CadisError(
            f"{subject} has a sample {len(items)} that cannot be loaded: {format_error(error)}."
        ) from error
    return [_get_pair(item, subject) for item in items]


def _get_pair(item: Any, subject: str) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        inputs, label = _find_columns(list(item), subject)
        return item[inputs[0]], item[label]
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    raise CadisError(
        f"{subject} has a sample that is not a pair; return an input and a label for each sample."
    )


def _convert_items(items: Sequence[tuple[Any, Any]], subject: str) -> Samples:
    """Stack single samples, which must have the same shape."""
    if not items:
        return Samples(torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    inputs, labels = zip(*items, strict=True)
    if all(isinstance(sample, Image.Image) for sample in inputs):
        return _convert_images(inputs, _to_label_tensor(labels, subject), subject)
    try:
        stacked = torch.stack([torch.as_tensor(sample) for sample in inputs])
    except (TypeError, ValueError, RuntimeError) as error:
        raise CadisError(
            f"{subject} has inputs that cannot be stacked to one tensor: {format_error(error)}."
        ) from None
    return Samples(stacked, _to_label_tensor(labels, subject))


def _convert_columns(data: Any, subject: str) -> Samples:
    """Convert a Hugging Face dataset."""
    if data.format["type"] == "custom":  # the user's transform returns the inputs
        return _convert_items([_get_pair(item, subject) for item in data], subject)
    inputs, label = _find_columns(list(data.column_names), subject, _get_features(data))
    plain = data.select_columns([*inputs, label]).with_format(None)
    if type(_get_features(data).get(inputs[0])).__name__ == "Image":
        return _convert_items([(item[inputs[0]], item[label]) for item in plain], subject)
    columns = plain.with_format("numpy")[:]
    parts = [np.asarray(columns[name]) for name in inputs]
    if any(part.dtype.kind not in "biuf" for part in parts):
        raise CadisError(
            f"{subject} has inputs that are not numbers of one shape in: {', '.join(inputs)}; "
            "convert them with the map function of the dataset, for example text to token ids."
        )
    rows = parts[0] if len(parts) == 1 else np.stack(parts, axis=1).astype(np.float32)
    return Samples(torch.from_numpy(rows), _to_label_tensor(columns[label], subject))


def _find_columns(
    names: Sequence[str], subject: str, features: Mapping[str, Any] | None = None
) -> tuple[list[str], str]:
    """Return the names of the input columns and of the label column."""
    classes = [name for name, feature in (features or {}).items() if hasattr(feature, "names")]
    label = next((name for name in _LABEL_COLUMNS if name in names), None)
    label = label or (classes[0] if len(classes) == 1 else None)
    others = [name for name in names if name != label]
    if label is None or not others:
        raise CadisError(
            f"{subject} has the columns {', '.join(names)}; name one of them label, and give "
            "another column with inputs."
        )
    inputs = next((name for name in _INPUT_COLUMNS if name in others), None)
    return [inputs] if inputs else others, label


def _to_label_tensor(labels: Iterable[Any], subject: str) -> Tensor:
    """Return class numbers, (n,), int64."""
    try:
        return torch.as_tensor(np.asarray([int(label) for label in labels], dtype=np.int64))
    except (TypeError, ValueError):
        raise CadisError(
            f"{subject} has labels that are not class numbers; number the classes from 0."
        ) from None


def _convert_images(images: Sequence[Image.Image], labels: Tensor, subject: str) -> Samples:
    """Convert images of one size, to gray if all are gray, else to RGB; 0 to 255 becomes 0 to 1."""
    is_gray = all(image.mode == "L" for image in images)
    if len({image.size for image in images}) > 1:
        raise CadisError(f"{subject} has images of several sizes; resize them all to one.")
    try:
        arrays = [np.asarray(image if is_gray else to_rgb(image, image)) for image in images]
    except ImageError as error:
        raise CadisError(f"{subject} has an image that cannot be used: {error}.") from None
    pixels = torch.from_numpy(np.stack(arrays))
    channels = 1 if is_gray else 3
    channels_first = pixels[:, None] if is_gray else pixels.permute(0, 3, 1, 2)
    return Samples(channels_first, labels, Scaling((0.0,) * channels, (1.0,) * channels))
