"""Our messages as Flower's records, and back.

A message with one model has it where Flower's own apps look for it, as a ``state_dict``; so a
client app that knows nothing of us can be trained. Several models, and further tensors, have
records of their own.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from io import BytesIO
from math import isfinite
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.lib.format import read_array_header_1_0, read_magic
from numpy.typing import NDArray
from torch import Tensor

from cadis.models import Layout, NamedState, WrongTensorsError
from cadis.types import Message, ModelState, TensorState

_MODEL = "cadis.model."
_TENSORS = "cadis.tensors"
_SCALAR = "cadis.scalar."
METRICS = "metrics"
"""Where a client puts its scalars."""

_MOST_EXAMPLES = 2**53
"""Nobody has more samples; floating numbers above it are not exact."""


def array_in(array: Array) -> NDArray[Any]:
    """Return an array's numbers, if possible as a view of its bytes, which may be anybody's.

    Whatever is not plain numbers in the usual version of numpy's format is left to Flower, which
    copies it or refuses it. Nothing is ever unpickled.
    """
    stream = BytesIO(array.data)
    if array.stype != "numpy.ndarray" or read_magic(stream) != (1, 0):
        return array.numpy()
    shape, by_columns, dtype = read_array_header_1_0(stream)
    if dtype.hasobject or min(shape, default=0) < 0:
        return array.numpy()
    view = np.ndarray(shape, dtype, array.data, stream.tell(), order="F" if by_columns else "C")
    return view if view.flags.aligned else view.copy()


def tensors_in(arrays: ArrayRecord) -> dict[str, Tensor]:
    """Return named tensors, which lie where the arrays' bytes do; copy what is to be written to.

    Raises:
        WrongTensorsError: if bytes are no array; it ends a sentence about who sent them.
    """
    tensors = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        for name, array in arrays.items():
            try:
                tensors[name] = torch.from_numpy(array_in(array))
            except Exception as error:  # whatever foreign bytes may raise
                raise WrongTensorsError(f"its {name} cannot be read ({error})") from None
    return tensors


def models_in(arrays: ArrayRecord, layout: Layout, names: Iterable[str]) -> dict[str, ModelState]:
    """Split one record into models: the inverse of :meth:`Layout.unpack_all`."""
    tensors, known = tensors_in(arrays), list(names)
    if len(known) == 1:
        return {known[0]: layout.pack(tensors)}
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in known}
    for path, tensor in tensors.items():
        model, _, name = path.partition("/")
        parts.setdefault(model, {})[name] = tensor
    return {model: layout.pack(part) for model, part in parts.items()}


def contents_of(messages: Iterable[Message], layout: Layout, arrays_key: str) -> list[RecordDict]:
    """Return the models and tensors of messages as records; what messages share is made once."""
    made: dict[object, ArrayRecord] = {}

    def record(kind: str, tensors: TensorState, make: Callable[[], TensorState]) -> ArrayRecord:
        key = kind, tuple((name, id(tensor)) for name, tensor in tensors.items())
        if key not in made:
            made[key] = ArrayRecord(dict(make()))
        return made[key]

    contents, kept = [], list(messages)  # while they are, no two tensors have the same id
    for message in kept:
        content = RecordDict()
        is_usual = list(message.models) == ["model"]
        for name, model in message.models.items():
            key = arrays_key if is_usual else f"{_MODEL}{name}"
            content[key] = record("model", model.pieces(), partial(layout.unpack, model))
        if message.tensors:
            own = {name: tensor.contiguous() for name, tensor in message.tensors.items()}
            content[_TENSORS] = record("tensors", message.tensors, partial(dict, own))
        contents.append(content)
    return contents


def scalars_to_config(message: Message) -> dict[str, float]:
    """Return a message's scalars as entries of the config that the server sends."""
    return {f"{_SCALAR}{name}": value for name, value in message.scalars.items()}


def sent_by_server(
    content: RecordDict, layout: Layout, arrays_key: str, config: ConfigRecord
) -> Message:
    """Read the message that a client has received."""
    scalars = {
        key.removeprefix(_SCALAR): float(value)
        for key, value in config.items()
        if key.startswith(_SCALAR) and isinstance(value, int | float)
    }
    return _read_message(content, arrays_key, "model", layout.pack, scalars)


def sent_by_client(content: RecordDict, layout: Layout, sent: Message) -> Message:
    """Read the message that a client has answered; ``sent`` is what it was sent.

    Its models lie where the answer's bytes do.

    Raises:
        WrongTensorsError: if the answer holds no models that fit; it ends a sentence about it.
    """
    others = [key for key in content.array_records if not key.startswith("cadis.")]
    named = [key for key in content.array_records if key.startswith(_MODEL)]
    if (named and others) or (not named and len(others) != 1):
        raise WrongTensorsError(f"it sent {len(others) + len(named)} models, not one")
    single = next(iter(sent.models)) if len(sent.models) == 1 else ""
    arrays_key = others[0] if others else ""
    make_model = partial(NamedState, layout=layout)
    return _read_message(content, arrays_key, single, make_model, scalars_in(content))


def scalars_in(content: RecordDict) -> dict[str, float]:
    """Return all finite scalars of a client's answer."""
    records = content.metric_records.values()
    return {name: value for record in records for name, value in finite_scalars(record).items()}


def count_in(content: RecordDict, key: str) -> int:
    """Return how many samples a client says it has.

    Raises:
        WrongTensorsError: if that is no whole number; it ends a sentence about the client.
    """
    counts = [record[key] for record in content.metric_records.values() if key in record]
    if not counts:
        raise WrongTensorsError(f"it did not send {key}")
    count = counts[-1]
    if not isinstance(count, int | float) or isinstance(count, bool):
        raise WrongTensorsError(f"its {key} is no number")
    if not (1 <= count <= _MOST_EXAMPLES and count == int(count)):
        raise WrongTensorsError(f"it says that it has {count} samples")
    return int(count)


def finite_scalars(record: MetricRecord) -> dict[str, float]:
    """Return the scalars of a record that are finite."""
    return {
        name: value
        for name, value in record.items()
        if isinstance(value, int) or (isinstance(value, float) and isfinite(value))
    }


def _read_message(
    content: RecordDict,
    arrays_key: str,
    single: str,
    make_model: Callable[[TensorState], ModelState],
    scalars: Mapping[str, float],
) -> Message:
    """Read models and tensors; a model at ``arrays_key`` has the name ``single``."""
    records = content.array_records
    keys = {key.removeprefix(_MODEL): key for key in records if key.startswith(_MODEL)}
    if arrays_key in records:
        keys[single] = arrays_key
    models = {name: make_model(tensors_in(records[key])) for name, key in keys.items()}
    tensors = tensors_in(records[_TENSORS]) if _TENSORS in records else {}
    copies = {name: tensor.clone() for name, tensor in tensors.items()}  # methods may write to them
    return Message(models, copies, scalars)
