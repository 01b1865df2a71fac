"""Conversion between the messages of cadis and Flower's records.

A message with a single model stores it as a ``state_dict`` under the key that Flower's own apps
use. A ClientApp that does not use cadis can therefore train it. If there are several models, each
has its own ``ArrayRecord``. Further tensors of the method have another ``ArrayRecord``.
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
from cadis.server import MAX_SAMPLES, MAX_SCALAR
from cadis.types import Message as CadisMessage
from cadis.types import ModelState, TensorState

_MODEL = "cadis.model."
_TENSORS = "cadis.tensors"
_SCALAR = "cadis.scalar."
ACCURACY_KEYS = ("accuracy", "eval_acc")
"""Names of the accuracy in the metrics of an evaluation."""

SECONDS_KEY = "train-seconds"
"""Name of the training time in a client's reply."""

METRICS_KEY = "metrics"
"""Key of the ``MetricRecord`` in a client's reply."""

STATE_LOST_KEY = "memory-lost"
"""Key of the metric that is 1 if a client lost its state. "Memory" is an earlier word for state;
the key stays the same, because the server and the clients may have different versions of cadis."""


class InvalidReplyError(ValueError):
    """A client's reply has a wrong number of models, or no valid number of samples.

    The text of the error is a clause, such as "it did not send num-examples"; "it" is the client.
    """


def read_array(array: Array) -> NDArray[Any]:
    """Return the values of an array, as a view of its bytes if possible.

    The bytes come from a client and are not trusted. Arrays that are not plain numbers in version
    1.0 of NumPy's file format are passed to Flower, which copies or rejects them. Nothing is
    unpickled.
    """
    stream = BytesIO(array.data)
    if array.stype != "numpy.ndarray" or read_magic(stream) != (1, 0):
        return array.numpy()
    shape, is_fortran, dtype = read_array_header_1_0(stream)
    if dtype.hasobject or min(shape, default=0) < 0:
        return array.numpy()
    view = np.ndarray(shape, dtype, array.data, stream.tell(), order="F" if is_fortran else "C")
    return view if view.flags.aligned else view.copy()


def to_tensors(arrays: ArrayRecord) -> dict[str, Tensor]:
    """Return the tensors of a record by name.

    They share memory with the record; do not write to them.

    Raises:
        WrongTensorsError: if an array cannot be read. The text of the error is a clause, such as
            "its fc.weight cannot be read (...)".
    """
    tensors = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        for name, array in arrays.items():
            try:
                tensors[name] = torch.from_numpy(read_array(array))
            except Exception as error:  # bytes of a client can raise any error
                raise WrongTensorsError(f"its {name} cannot be read ({error})") from None
    return tensors


def to_models(arrays: ArrayRecord, layout: Layout, names: Iterable[str]) -> dict[str, ModelState]:
    """Split one record into models: the inverse of :meth:`Layout.unpack_models`."""
    tensors, model_names = to_tensors(arrays), list(names)
    if len(model_names) == 1:
        return {model_names[0]: layout.pack(tensors)}
    models: dict[str, dict[str, Tensor]] = {name: {} for name in model_names}
    for path, tensor in tensors.items():
        model, _, name = path.partition("/")
        models.setdefault(model, {})[name] = tensor
    return {model: layout.pack(state) for model, state in models.items()}


def to_records(
    messages: Iterable[CadisMessage], layout: Layout, arrays_key: str
) -> list[RecordDict]:
    """Convert the models and tensors of messages to records.

    Tensors that several messages share are converted once.
    """
    cache: dict[object, ArrayRecord] = {}

    def get_record(part: str, tensors: TensorState, make: Callable[[], TensorState]) -> ArrayRecord:
        key = part, tuple((name, id(tensor)) for name, tensor in tensors.items())
        if key not in cache:
            cache[key] = ArrayRecord(dict(make()))
        return cache[key]

    contents, messages = [], list(messages)  # keeps all tensors alive, so that ids are unique
    for message in messages:
        content = RecordDict()
        has_single_model = list(message.models) == ["model"]
        for name, model in message.models.items():
            key = arrays_key if has_single_model else f"{_MODEL}{name}"
            content[key] = get_record("model", model.get_tensors(), partial(layout.unpack, model))
        if message.tensors:
            tensors = {name: tensor.contiguous() for name, tensor in message.tensors.items()}
            content[_TENSORS] = get_record("tensors", message.tensors, partial(dict, tensors))
        contents.append(content)
    return contents


def scalars_to_config(message: CadisMessage) -> dict[str, float]:
    """Return the scalars of a message as entries of the config that the server sends."""
    return {f"{_SCALAR}{name}": value for name, value in message.scalars.items()}


def read_server_message(
    content: RecordDict, layout: Layout, arrays_key: str, config: ConfigRecord
) -> CadisMessage:
    """Return the cadis message for the content that the server sent to a client."""
    scalars = {
        key.removeprefix(_SCALAR): float(value)
        for key, value in config.items()
        if key.startswith(_SCALAR) and isinstance(value, int | float)
    }
    return _read_message(content, arrays_key, "model", layout.pack, scalars)


def read_client_reply(content: RecordDict, layout: Layout, sent: CadisMessage) -> CadisMessage:
    """Convert a client's reply to a message. The models share memory with the reply.

    Args:
        content: the content of the reply.
        layout: names and shapes of the model's tensors.
        sent: the message that the server sent to this client.

    Raises:
        InvalidReplyError: if the number of models is wrong.
        WrongTensorsError: if the tensors of a model do not fit the global model. The text of the
            error is a clause, such as "its model lacks fc.weight".
    """
    plain_keys = [key for key in content.array_records if not key.startswith("cadis.")]
    named_keys = [key for key in content.array_records if key.startswith(_MODEL)]
    if (named_keys and plain_keys) or (not named_keys and len(plain_keys) != 1):
        raise InvalidReplyError(f"it sent {len(plain_keys) + len(named_keys)} models, not one")
    single_name = next(iter(sent.models)) if len(sent.models) == 1 else ""
    arrays_key = plain_keys[0] if plain_keys else ""
    make_model = partial(NamedState, layout=layout)
    return _read_message(content, arrays_key, single_name, make_model, read_scalars(content))


def read_scalars(content: RecordDict) -> dict[str, float]:
    """Return all finite scalars of a client's reply."""
    records = content.metric_records.values()
    return {name: value for record in records for name, value in select_finite(record).items()}


def read_num_samples(content: RecordDict, key: str) -> int:
    """Return the number of samples that a client reports.

    Raises:
        InvalidReplyError: if it is missing or not a positive integer.
    """
    counts = [record[key] for record in content.metric_records.values() if key in record]
    if not counts:
        raise InvalidReplyError(f"it did not send {key}")
    count = counts[-1]
    if not isinstance(count, int | float) or isinstance(count, bool):
        raise InvalidReplyError(f"its {key} is not a number")
    if not (1 <= count <= MAX_SAMPLES and count == int(count)):
        raise InvalidReplyError(f"it reports {count} samples")
    return int(count)


def check_metrics(content: RecordDict) -> None:
    """Check the metrics of an evaluation.

    Raises:
        InvalidReplyError: if the accuracy is not from 0 to 1, or a metric is absurdly large.
    """
    for name, value in read_scalars(content).items():
        lowest, highest = (0, 1) if name in ACCURACY_KEYS else (-MAX_SCALAR, MAX_SCALAR)
        if not lowest <= value <= highest:
            raise InvalidReplyError(
                f"its {name} is {value:g}, but must be from {lowest:g} to {highest:g}"
            )


def read_seconds(scalars: Mapping[str, float], timeout: float) -> float | None:
    """Return the training time that a client reports; None if it is missing or impossible.

    Args:
        scalars: the scalars of the reply.
        timeout: seconds that the server waits for a reply.
    """
    seconds = scalars.get(SECONDS_KEY)
    return seconds if seconds is not None and 0 <= seconds <= timeout else None


def select_finite(record: MetricRecord) -> dict[str, float]:
    """Return the scalars of a record that are finite."""
    return {
        name: value
        for name, value in record.items()
        if isinstance(value, int) or (isinstance(value, float) and isfinite(value))
    }


def _read_message(
    content: RecordDict,
    arrays_key: str,
    single_name: str,
    make_model: Callable[[TensorState], ModelState],
    scalars: Mapping[str, float],
) -> CadisMessage:
    """Read models and tensors; the model with the key ``arrays_key`` is named ``single_name``."""
    records = content.array_records
    keys = {key.removeprefix(_MODEL): key for key in records if key.startswith(_MODEL)}
    if arrays_key in records:
        keys[single_name] = arrays_key
    models = {name: make_model(to_tensors(records[key])) for name, key in keys.items()}
    tensors = to_tensors(records[_TENSORS]) if _TENSORS in records else {}
    copies = {name: tensor.clone() for name, tensor in tensors.items()}  # methods may write to them
    return CadisMessage(models, copies, scalars)
