"""Our messages as Flower's records, and back.

A message with one model has it where Flower's own apps look for it, as a ``state_dict``; so a
client app that knows nothing of us can be trained. Several models, and further tensors, have
records of their own.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import isfinite

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from cadis.flower.arrays import array_in, writable
from cadis.models import Layout, NamedState, WrongTensorsError
from cadis.types import Message, ModelState, TensorState

_MODEL = "cadis.model."
_TENSORS = "cadis.tensors"
_SCALAR = "cadis.scalar."
METRICS = "metrics"
"""Where a client puts its scalars."""


def tensors_in(arrays: ArrayRecord) -> dict[str, Tensor]:
    """Named tensors, which lie where the arrays' bytes do; copy what is to be written to.

    Raises:
        WrongTensorsError: if bytes are no array; it ends a sentence about who sent them.
    """
    return {name: _tensor(name, array) for name, array in arrays.items()}


def arrays_of(layout: Layout, models: Mapping[str, ModelState]) -> ArrayRecord:
    """All models as one record: a ``state_dict``, of several with the model's name before it."""
    return ArrayRecord(layout.unpack_all(models))


def models_in(arrays: ArrayRecord, layout: Layout, names: Iterable[str]) -> dict[str, ModelState]:
    """The inverse of :func:`arrays_of`."""
    tensors, known = tensors_in(arrays), list(names)
    if len(known) == 1:
        return {known[0]: layout.pack(tensors)}
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in known}
    for path, tensor in tensors.items():
        model, _, name = path.partition("/")
        parts.setdefault(model, {})[name] = tensor
    return {model: layout.pack(part) for model, part in parts.items()}


def contents_of(messages: Iterable[Message], layout: Layout, arrays_key: str) -> list[RecordDict]:
    """The models and tensors of messages as records; what messages share is made once."""
    made: dict[object, ArrayRecord] = {}

    def record(kind: str, tensors: TensorState, make: Callable[[], TensorState]) -> ArrayRecord:
        key = kind, tuple((name, id(tensor)) for name, tensor in tensors.items())
        if key not in made:
            made[key] = ArrayRecord(dict(make()))
        return made[key]

    contents, kept = [], list(messages)  # while they are, no two tensors have the same id
    for message in kept:
        content = RecordDict()
        for name, model in message.models.items():
            place = _key(name, message.models, arrays_key)
            content[place] = record("model", model.pieces(), partial(layout.unpack, model))
        if message.tensors:
            own = {name: tensor.contiguous() for name, tensor in message.tensors.items()}
            content[_TENSORS] = record("tensors", message.tensors, partial(dict, own))
        contents.append(content)
    return contents


def scalars_to_config(message: Message) -> dict[str, float]:
    """What the server says in numbers, as entries of the config that it sends."""
    return {f"{_SCALAR}{name}": value for name, value in message.scalars.items()}


def sent_by_server(
    content: RecordDict, layout: Layout, arrays_key: str, config: ConfigRecord
) -> Message:
    """The message in what a client has received."""
    scalars = {
        key.removeprefix(_SCALAR): float(value)
        for key, value in config.items()
        if key.startswith(_SCALAR) and isinstance(value, int | float)
    }
    models = _models(content, arrays_key, "model", layout.pack)
    return Message(models, _tensors(content), scalars)


def sent_by_client(content: RecordDict, layout: Layout, sent: Message) -> Message:
    """The message in what a client has answered; ``sent`` is what it was sent.

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
    models = _models(content, arrays_key, single, partial(NamedState, layout=layout))
    return Message(models, _tensors(content), scalars_in(content))


def scalars_in(content: RecordDict) -> dict[str, float]:
    """All finite scalars of a client's answer."""
    return {
        name: value
        for record in content.metric_records.values()
        for name, value in record.items()
        if isinstance(value, int) or (isinstance(value, float) and isfinite(value))
    }


def _key(name: str, models: Mapping[str, ModelState], arrays_key: str) -> str:
    """Where a model goes: the usual place, if it is the only one and has the usual name."""
    return arrays_key if len(models) == 1 and name == "model" else f"{_MODEL}{name}"


def _models(
    content: RecordDict, arrays_key: str, single: str, made_of: Callable[[TensorState], ModelState]
) -> dict[str, ModelState]:
    models = {
        key.removeprefix(_MODEL): made_of(tensors_in(arrays))
        for key, arrays in content.array_records.items()
        if key.startswith(_MODEL)
    }
    if arrays_key in content.array_records:
        models[single] = made_of(tensors_in(content.array_records[arrays_key]))
    return models


def _tensors(content: RecordDict) -> dict[str, Tensor]:
    """Tensors besides the models; they are copies, as anybody's code works on them."""
    records = content.array_records
    found = tensors_in(records[_TENSORS]) if _TENSORS in records else {}
    return {name: tensor.clone() for name, tensor in found.items()}


def _tensor(name: str, array: Array) -> Tensor:
    try:
        return torch.from_numpy(writable(array_in(array)))
    except Exception as error:  # whatever foreign bytes may raise
        raise WrongTensorsError(f"its {name} cannot be read ({error})") from None
