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

from cadis.core import CadisError, generator_for
from cadis.data import Examples, as_examples
from cadis.flower.memory import Memory, memory_folder
from cadis.flower.registry import IDENTITY_KEYS
from cadis.flower.train_config import TrainConfig
from cadis.methods import Method
from cadis.models import FlatModel
from cadis.training import check_fit, check_labels, evaluate, train_locally

Data: TypeAlias = Examples | tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]]
"""Examples, inputs and labels, or batches of them such as a DataLoader's."""


def local_train(
    model: nn.Module,
    data: Data,
    global_arrays: ArrayRecord,
    config: Mapping[str, Any],
    *,
    method: Method | None = None,
    memory: Path | None = None,
) -> tuple[ArrayRecord, MetricRecord]:
    """Train the global model on a client's own data, as the server's method has it.

    Trains on the device that the model is on. ``epochs``, ``batch-size`` and ``lr`` are read from
    the config; :class:`~cadis.flower.MethodStrategy` adds to it which method, who the client is,
    and the seed.

    Args:
        model: the architecture; it is not changed.
        data: the client's own.
        global_arrays: the received global model, a ``state_dict``.
        config: the received config.
        method: the client's half of this method, whatever the server says.
        memory: folder for what methods remember of a client, by default ``$CADIS_STATE`` or the
            user's folder for such.

    Returns:
        The trained model, and scalars: ``num-examples``, ``train-seconds``, and what the method's
        server half needs. Nothing else is to leave the client.
    """
    started = time.perf_counter()
    train_config = TrainConfig.read(config, method)
    flat, examples = load_arrays(model, global_arrays, train_config.head), _checked(data)
    check_labels(examples.labels, flat.num_classes, "This client")
    check_fit(flat, examples.to(flat.vector.device))
    if torch.bfloat16 in {tensor.dtype for tensor in flat.module.state_dict().values()}:
        raise CadisError("Flower's messages cannot hold bfloat16; make the model float32.")
    store = (
        Memory(memory or memory_folder(), train_config.run, train_config.client)
        if train_config.run
        else None
    )
    before = store.load(train_config.memory_round) if store and train_config.memory_round else None
    result = train_locally(
        flat,
        train_config.method,
        examples.to(flat.vector.device),
        flat.state(),
        {name: tensor.to(flat.vector.device) for name, tensor in (before or {}).items()},
        train_config.local,
        generator_for(train_config.seed, "train", train_config.round, train_config.client),
    )
    metrics: dict[str, MetricRecordValues] = {"num-examples": len(examples), **result.metrics}
    if result.client_state:
        if store is None:
            raise CadisError(
                f"Clients of {train_config.method.name} remember their last round; the server "
                "needs a strategy of cadis.flower for that."
            )
        store.save(train_config.round, result.client_state, train_config.memory_round)
        metrics["memory-lost"] = int(train_config.memory_round > 0 and before is None)
    metrics["train-seconds"] = time.perf_counter() - started
    tensors = {name: tensor.detach().cpu() for name, tensor in flat.module.state_dict().items()}
    return ArrayRecord(tensors), MetricRecord(metrics)


def local_evaluate(model: nn.Module, data: Data, global_arrays: ArrayRecord) -> MetricRecord:
    """Test the global model on a client's own data: ``num-examples``, ``accuracy``, ``loss``."""
    flat, examples = load_arrays(model, global_arrays), _checked(data)
    tested = evaluate(flat, examples.to(flat.vector.device))
    return MetricRecord(
        {"num-examples": len(examples), "accuracy": tested.accuracy, "loss": tested.loss}
    )


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


def _checked(data: Data) -> Examples:
    examples = as_examples(data, "This client")
    examples.check("This client")
    return examples
