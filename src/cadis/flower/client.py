"""Functions to call in a Flower ClientApp: train, evaluate, and reply to the identity query."""

import json
import os
import re
import time
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.app.typing import MetricRecordValues
from platformdirs import user_state_path
from torch import Tensor, nn

from cadis._io import make_private_folder
from cadis.algorithm import BaseMethod
from cadis.data import Samples, as_samples
from cadis.errors import CadisError
from cadis.flower.messages import (
    METRICS_KEY,
    SECONDS_KEY,
    STATE_LOST_KEY,
    read_server_message,
    to_records,
)
from cadis.flower.registry import IDENTITY_KEYS
from cadis.flower.train_config import TrainConfig
from cadis.models import FlatModel, WrongTensorsError, find_linear_layers, get_auto_lr
from cadis.store import DamagedError, read_tensors, store_tensors, sync_folder
from cadis.training import check_labels, check_model, evaluate, train_client
from cadis.types import ClientId, StoredFile, TensorState
from cadis.types import Message as CadisMessage

Data: TypeAlias = Samples | tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]]
"""Samples, a pair of inputs and labels, or an iterable of such batches (a DataLoader)."""


def local_train(
    model: nn.Module,
    data: Data,
    content: RecordDict,
    *,
    method: BaseMethod | None = None,
    custom_classes: Iterable[type[Any]] = (),
    state_dir: Path | None = None,
    arrays_key: str = "arrays",
    config_key: str = "config",
) -> RecordDict:
    """Train the global model on the data of this client with the server's algorithm.

    Training runs on the device of ``model``. The config of the message has settings such as
    ``epochs``, ``batch-size`` and ``lr``. :class:`~cadis.flower.strategy.MethodStrategy` adds to it
    the method and the other parts (their names and parameters), the client id and the seed.

    Args:
        model: a model with the architecture of the global model; it is not changed.
        data: the training data of this client.
        content: the content of the server's message.
        method: the method to run, instead of the method that the config names.
        custom_classes: your own classes of methods, tasks, transforms and local optimizers. The
            server sends only their names and parameters.
        state_dir: folder for the states of clients between rounds, by default ``$CADIS_STATE`` or
            a ``cadis`` folder in the user's state folder.
        arrays_key: key of the model in the message.
        config_key: key of the config in the message.

    Returns:
        The content of the reply: the trained model, further tensors of the method, and scalars:
        ``num-examples``, ``train-seconds``, and the scalars that the server side of the method
        needs. Use it as the content of your reply, without changes.

    Example:
        >>> from flwr.app import ArrayRecord, RecordDict
        >>> model = torch.nn.Linear(2, 3)
        >>> content = RecordDict({"arrays": ArrayRecord(model.state_dict())})
        >>> reply = local_train(model, (torch.randn(9, 2), torch.arange(9) % 3), content)
        >>> sorted(reply)
        ['arrays', 'metrics']
    """
    started = time.perf_counter()
    record = content.config_records.get(config_key, ConfigRecord())
    config = TrainConfig.from_record(record, custom_classes, method, get_auto_lr(model))
    flat, samples = _flat_copy(model, config), prepare_samples(data, "This client")
    device = flat.vector.device
    if torch.bfloat16 in set(flat.layout.dtypes.values()):
        raise CadisError("Flower's messages cannot hold bfloat16: convert the model to float32.")
    check_model(flat, samples.to(device), config.algorithm)
    num_classes = config.algorithm.task.num_classes(flat.num_outputs)
    check_labels(samples.labels, num_classes, "This client")
    received = _read_from_server(content, flat, arrays_key, record)
    folder = state_dir or get_state_folder()
    states = ClientStates(folder, config.run, config.client) if config.run else None
    # A newer state may exist: of a round in which the server did not aggregate the update.
    state = states.load(config.state_round) if states is not None else None
    output = train_client(
        received,
        flat,
        samples.to(device),
        state or {},
        config.algorithm,
        config.local,
        config.seed,
        config.round,
        config.client,
        config.participants,
    )
    metrics: dict[str, MetricRecordValues] = {"num-examples": len(samples), **output.scalars}
    if output.state:
        if states is None:
            raise CadisError(
                f"Clients of {config.algorithm.method.name} keep a state between rounds: use a "
                "strategy of cadis.flower in the ServerApp."
            )
        states.save(config.round, output.state, config.state_round)
        metrics[STATE_LOST_KEY] = int(config.state_round > 0 and state is None)
    metrics[SECONDS_KEY] = time.perf_counter() - started
    (reply,) = to_records([output.message], flat.layout, arrays_key)
    reply[METRICS_KEY] = MetricRecord(metrics)
    return reply


def local_evaluate(
    model: nn.Module,
    data: Data,
    content: RecordDict,
    *,
    custom_classes: Iterable[type[Any]] = (),
    arrays_key: str = "arrays",
    config_key: str = "config",
) -> RecordDict:
    """Evaluate the global model on the data of this client.

    Args:
        model: a model with the architecture of the global model; it is not changed.
        data: the test data of this client.
        content: the content of the server's message.
        custom_classes: your own task class, if the server names one.
        arrays_key: key of the model in the message.
        config_key: key of the config in the message.

    Returns:
        The content of the reply: ``num-examples``, ``accuracy``, ``loss`` and the further metrics
        of the task.

    Example:
        >>> from flwr.app import ArrayRecord, RecordDict
        >>> model = torch.nn.Linear(2, 3)
        >>> content = RecordDict({"arrays": ArrayRecord(model.state_dict())})
        >>> reply = local_evaluate(model, (torch.randn(9, 2), torch.arange(9) % 3), content)
        >>> sorted(reply["metrics"])
        ['accuracy', 'loss', 'num-examples']
    """
    record = content.config_records.get(config_key, ConfigRecord())
    config = TrainConfig.from_record(record, custom_classes)
    task, samples = config.algorithm.task, prepare_samples(data, "This client")
    flat = _flat_copy(model, config)
    flat.load(_read_from_server(content, flat, arrays_key, record).model)
    evaluation = evaluate(flat, samples.to(flat.vector.device), task)
    all_metrics = evaluation.compute_metrics(task)
    metrics: dict[str, MetricRecordValues] = {
        "num-examples": len(samples),
        "accuracy": evaluation.accuracy,
        "loss": evaluation.loss,
        **evaluation.compute_task_metrics(task),
        **{name: value for name, value in all_metrics.items() if name == task.main_metric},
    }
    return RecordDict({METRICS_KEY: MetricRecord(metrics)})


def introduce(message: Message, context: Context) -> Message:
    """Reply to the server's identity query with ``client-id`` and ``partition-id``.

    Both come from the ``--node-config`` of the SuperNode. The server prefers ``client-id``.

    Args:
        message: the query of the server.
        context: Flower's context of this node.

    Returns:
        The reply.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp()
        >>> _ = app.query()(introduce)
    """
    config = context.node_config
    identity = ConfigRecord({key: config[key] for key in IDENTITY_KEYS if key in config})
    return Message(RecordDict({"identity": identity}), reply_to=message)


def get_state_folder() -> Path:
    """Return the folder for the states of clients: ``$CADIS_STATE`` or the user's state folder."""
    path = os.environ.get("CADIS_STATE")
    return Path(path).expanduser() if path else user_state_path("cadis") / "clients"


@dataclass(frozen=True)
class ClientStates:
    """The states of one client in one run, stored on the disk of the client.

    A server that was killed may repeat a round, which must then start from the same state as
    before. Therefore the state before a round is kept until the next round.

    Attributes:
        folder: folder for the states of all clients.
        run: id of the run, 16 hexadecimal digits.
        client: id of the client.
    """

    folder: Path
    run: str
    client: ClientId

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{16}", self.run):  # it becomes part of a path
            raise CadisError(
                f"'{self.run}' is not the id of a run; expected 16 hexadecimal digits."
            )

    def load(self, number: int) -> TensorState | None:
        """Return the state after round ``number``, or None if it is missing or damaged."""
        for path in self._folder.glob(f"round-{number}-*.safetensors"):
            digest = path.stem.rpartition("-")[2]
            try:
                return read_tensors(path.parent, StoredFile(path.name, digest))
            except DamagedError:
                return None
        return None

    def save(self, number: int, state: TensorState, state_round: int) -> None:
        """Save the state after round ``number``.

        The state after round ``state_round``, from which this round started, is kept; all other
        states are deleted.
        """
        folder = self._folder
        make_private_folder(folder, self.folder / self.run)
        stored = store_tensors(folder / "new.safetensors", state)
        path = folder / f"round-{number}-{stored.sha256}.safetensors"
        (folder / stored.name).replace(path)
        sync_folder(folder)
        kept = {path}
        if state_round != number:
            kept |= set(folder.glob(f"round-{state_round}-*"))
        for outdated in set(folder.glob("round-*")) - kept:
            outdated.unlink(missing_ok=True)

    @property
    def _folder(self) -> Path:
        return self.folder / self.run / quote(json.dumps(self.client), safe="")


def prepare_samples(data: Data, owner: str) -> Samples:
    """Convert data to samples and check them; error messages begin with ``owner``."""
    samples = as_samples(data, owner)
    samples.check(owner)
    return samples


def _flat_copy(model: nn.Module, config: TrainConfig) -> FlatModel:
    """Copy the model, and use the classifier layer that the server names.

    The server knows only the names and shapes of tensors, so it may name a layer that is not
    linear. This is an error only if the algorithm uses the classifier layer.
    """
    is_unknown = config.head and config.head not in find_linear_layers(model)
    is_ignored = is_unknown and not config.algorithm.find_part_needing_head()
    # FlatModel takes "" for no classifier layer, and None for the last linear layer.
    return FlatModel(deepcopy(model), "" if is_ignored else config.head or None)


def _read_from_server(
    content: RecordDict, flat: FlatModel, arrays_key: str, config: ConfigRecord
) -> CadisMessage:
    try:
        return read_server_message(content, flat.layout, arrays_key, config)
    except WrongTensorsError as error:
        raise CadisError(
            f"The global model does not fit the model of this client: {error}."
        ) from None
