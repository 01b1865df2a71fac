"""The client's side, to be called from anybody's ClientApp."""

import time
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.app.typing import MetricRecordValues
from torch import Tensor, nn

from cadis.algorithm import Method
from cadis.algorithm.tasks import Task
from cadis.data import Examples, as_examples
from cadis.errors import CadisError
from cadis.flower.client_state import Memory, memory_folder
from cadis.flower.messages import METRICS, contents_of, sent_by_server
from cadis.flower.registry import IDENTITY_KEYS
from cadis.flower.train_config import TrainConfig
from cadis.models import FlatModel, WrongTensorsError, auto_lr, linear_layers
from cadis.training import Evaluation, check_fit, check_labels, evaluate, reply_to
from cadis.types import Message as CadisMessage
from cadis.types import TensorState

Data: TypeAlias = Examples | tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]]
"""Examples, inputs and labels, or batches of them such as a DataLoader's."""


def local_train(
    model: nn.Module,
    data: Data,
    content: RecordDict,
    *,
    method: Method | None = None,
    own: Iterable[type[Any]] = (),
    memory: Path | None = None,
    arrays_key: str = "arrays",
    config_key: str = "config",
) -> RecordDict:
    """Train the global model on a client's own data, as the server's algorithm has it.

    Trains on the device that the model is on. ``epochs``, ``batch-size`` and ``lr`` are read from
    the config; :class:`~cadis.flower.strategy.MethodStrategy` adds to it which method and other
    parts, who the client is, and the seed.

    Args:
        model: the architecture; it is not changed.
        data: the client's own.
        content: of the message that the server sent.
        method: the client's half of this method, whatever the server says.
        own: classes of methods, tasks, transforms and local optimisers that are not ours, which
            the server may name.
        memory: folder for what methods remember of a client, by default ``$CADIS_STATE`` or the
            user's folder for such.
        arrays_key: where in the message the model is.
        config_key: where in the message the config is.

    Returns:
        The content of the answer: the trained model and what else the method sends, and scalars:
        ``num-examples``, ``train-seconds``, and what the method's server half needs. Nothing else
        is to leave the client.
    """
    started = time.perf_counter()
    config = content.config_records.get(config_key, ConfigRecord())
    told = TrainConfig.read(config, own, method, auto_lr(model))
    flat, examples = _flat(model, told), _checked(data)
    task, device = told.algorithm.task, flat.vector.device
    if torch.bfloat16 in set(flat.layout.dtypes.values()):
        raise CadisError("Flower's messages cannot hold bfloat16; make the model float32.")
    check_fit(flat, examples.to(device), told.algorithm)
    check_labels(examples.labels, task.num_classes(flat.num_outputs), "This client")
    received = _received(content, flat, arrays_key, config)
    remembered = _Remembered(told, memory)
    output = reply_to(
        received,
        flat,
        examples.to(device),
        remembered.before or {},
        told.algorithm,
        told.local,
        told.seed,
        told.round,
        told.client,
        told.participants,
    )
    metrics: dict[str, MetricRecordValues] = {"num-examples": len(examples)}
    metrics |= {**output.scalars, **remembered.keep(output.state)}
    metrics["train-seconds"] = time.perf_counter() - started
    (answer,) = contents_of([output.message], flat.layout, arrays_key)
    answer[METRICS] = MetricRecord(metrics)
    return answer


def local_evaluate(
    model: nn.Module,
    data: Data,
    content: RecordDict,
    *,
    own: Iterable[type[Any]] = (),
    arrays_key: str = "arrays",
    config_key: str = "config",
) -> RecordDict:
    """Test the global model on a client's own data: ``num-examples``, ``accuracy``, ``loss``.

    Arguments as those of :func:`local_train`. The task's further measures are told, too.
    """
    config = content.config_records.get(config_key, ConfigRecord())
    told = TrainConfig.read(config, own)
    task, examples = told.algorithm.task, _checked(data)
    flat = _flat(model, told)
    flat.load(_received(content, flat, arrays_key, config).model)
    tested = evaluate(flat, examples.to(flat.vector.device), task)
    metrics: dict[str, MetricRecordValues] = {
        "num-examples": len(examples),
        "accuracy": tested.accuracy,
        "loss": tested.loss,
        **_told(tested, task),
    }
    return RecordDict({METRICS: MetricRecord(metrics)})


def _told(tested: Evaluation, task: Task) -> Mapping[str, float]:
    """The task's measures and what decides: no more leaves a client than is asked for."""
    decides = {name: v for name, v in tested.measures(task).items() if name == task.headline}
    return {**tested.asked_for(task), **decides}


def introduce(message: Message, context: Context) -> Message:
    """Answer the server's question who this client is: register it by ``@app.query()``.

    It is what ``--node-config`` says: ``client-id``, else ``partition-id``.
    """
    identity = ConfigRecord()
    for key in IDENTITY_KEYS:
        if key in context.node_config:
            identity[key] = context.node_config[key]
    return Message(RecordDict({"identity": identity}), reply_to=message)


def load_arrays(model: nn.Module, arrays: ArrayRecord, head: str = "") -> FlatModel:
    """A copy of the model that holds the arrays."""
    copy = deepcopy(model)
    try:
        copy.load_state_dict(arrays.to_torch_state_dict())
    except RuntimeError as error:
        raise CadisError(f"The global model does not fit this client's: {error}") from None
    return FlatModel(copy, head or None)


class _Remembered:
    """What this client remembers, on its own disk.

    Attributes:
        before: what it remembers of the round that the server says; None if that is lost.
    """

    def __init__(self, told: TrainConfig, folder: Path | None) -> None:
        self._told = told
        self._store = Memory(folder or memory_folder(), told.run, told.client) if told.run else None
        wanted = self._store and told.memory_round
        self.before = self._store.load(told.memory_round) if self._store and wanted else None

    def keep(self, state: TensorState) -> dict[str, MetricRecordValues]:
        """Keep what the client is to remember; tells whether what it remembered was lost."""
        told = self._told
        if not state:
            return {}
        if self._store is None:
            raise CadisError(
                f"Clients of {told.algorithm.method.name} remember their last round; the server "
                "needs a strategy of cadis.flower for that."
            )
        self._store.save(told.round, state, told.memory_round)
        return {"memory-lost": int(told.memory_round > 0 and self.before is None)}


def _flat(model: nn.Module, told: TrainConfig) -> FlatModel:
    """A copy of the model; the server, which has no code of it, may take any layer for its head."""
    unknown = told.head and told.head not in linear_layers(model)
    ignored = unknown and not told.algorithm.looks_at_head()
    return FlatModel(deepcopy(model), "" if ignored else told.head or None)


def _received(
    content: RecordDict, flat: FlatModel, arrays_key: str, config: ConfigRecord
) -> CadisMessage:
    try:
        return sent_by_server(content, flat.layout, arrays_key, config)
    except WrongTensorsError as error:
        raise CadisError(f"The global model does not fit this client's: {error}.") from None


def _checked(data: Data) -> Examples:
    examples = as_examples(data, "This client")
    examples.check("This client")
    return examples
