"""The client's side, to be called from anybody's ClientApp."""

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

from cadis.algorithm import BaseMethod
from cadis.data import Examples, as_examples
from cadis.errors import CadisError
from cadis.flower.messages import METRICS, contents_of, sent_by_server
from cadis.flower.registry import IDENTITY_KEYS
from cadis.flower.train_config import TrainConfig
from cadis.models import FlatModel, WrongTensorsError, auto_lr, linear_layers
from cadis.store import DamagedError, read_tensors, store_tensors, sync_folder
from cadis.training import check_fit, check_labels, evaluate, reply_to
from cadis.types import ClientId, StoredFile, TensorState
from cadis.types import Message as CadisMessage

Data: TypeAlias = Examples | tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]]
"""Examples, inputs and labels, or batches of them such as a DataLoader's."""


def local_train(
    model: nn.Module,
    data: Data,
    content: RecordDict,
    *,
    method: BaseMethod | None = None,
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
    record = content.config_records.get(config_key, ConfigRecord())
    config = TrainConfig.read(record, own, method, auto_lr(model))
    flat, examples = _flat_copy(model, config), checked_examples(data, "This client")
    device = flat.vector.device
    if torch.bfloat16 in set(flat.layout.dtypes.values()):
        raise CadisError("Flower's messages cannot hold bfloat16; make the model float32.")
    check_fit(flat, examples.to(device), config.algorithm)
    num_classes = config.algorithm.task.num_classes(flat.num_outputs)
    check_labels(examples.labels, num_classes, "This client")
    received = _received(content, flat, arrays_key, record)
    folder = memory or memory_folder()
    states = ClientStates(folder, config.run, config.client) if config.run else None
    before = states.load(config.memory_round) if states is not None else None
    output = reply_to(
        received,
        flat,
        examples.to(device),
        before or {},
        config.algorithm,
        config.local,
        config.seed,
        config.round,
        config.client,
        config.participants,
    )
    metrics: dict[str, MetricRecordValues] = {"num-examples": len(examples), **output.scalars}
    if output.state:
        if states is None:
            raise CadisError(
                f"Clients of {config.algorithm.method.name} remember their last round; the server "
                "needs a strategy of cadis.flower for that."
            )
        states.save(config.round, output.state, config.memory_round)
        metrics["memory-lost"] = int(config.memory_round > 0 and before is None)
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

    Arguments as those of :func:`local_train`. The task's further measures are told, too, and no
    more than is asked for leaves the client.
    """
    record = content.config_records.get(config_key, ConfigRecord())
    config = TrainConfig.read(record, own)
    task, examples = config.algorithm.task, checked_examples(data, "This client")
    flat = _flat_copy(model, config)
    flat.load(_received(content, flat, arrays_key, record).model)
    tested = evaluate(flat, examples.to(flat.vector.device), task)
    measures = tested.measures(task)
    metrics: dict[str, MetricRecordValues] = {
        "num-examples": len(examples),
        "accuracy": tested.accuracy,
        "loss": tested.loss,
        **tested.asked_for(task),
        **{name: value for name, value in measures.items() if name == task.headline},
    }
    return RecordDict({METRICS: MetricRecord(metrics)})


def introduce(message: Message, context: Context) -> Message:
    """Answer the server's question who this client is: register it by ``@app.query()``.

    It is what ``--node-config`` says: ``client-id``, else ``partition-id``.
    """
    known = context.node_config
    identity = ConfigRecord({key: known[key] for key in IDENTITY_KEYS if key in known})
    return Message(RecordDict({"identity": identity}), reply_to=message)


def memory_folder() -> Path:
    """Return where clients' states are kept: ``$CADIS_STATE``, else the user's folder for such."""
    given = os.environ.get("CADIS_STATE")
    return Path(given).expanduser() if given else user_state_path("cadis") / "clients"


@dataclass(frozen=True)
class ClientStates:
    """What one client remembers in one run, on its own disk: its state after the latest rounds.

    A server that was killed may ask for a round again, and must find the client as it was before
    it. So the state that a round began with is kept until the next round begins.

    Attributes:
        folder: where clients' states are kept.
        run: name of the run.
        client: whose they are.
    """

    folder: Path
    run: str
    client: ClientId

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{16}", self.run):  # it comes from elsewhere, becomes a path
            raise CadisError(f"'{self.run}' is not the name of a run.")

    def load(self, number: int) -> TensorState | None:
        """Return the state after a round; None if it is lost or damaged."""
        for path in self._folder.glob(f"round-{number}-*.safetensors"):
            digest = path.stem.rpartition("-")[2]
            try:
                return read_tensors(path.parent, StoredFile(path.name, digest))
            except DamagedError:
                return None
        return None

    def save(self, number: int, state: TensorState, began_with: int) -> None:
        """Keep the state after a round, and that before it; drop all others."""
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        stored = store_tensors(folder / "new.safetensors", state)
        path = folder / f"round-{number}-{stored.sha256}.safetensors"
        (folder / stored.name).replace(path)
        sync_folder(folder)
        kept = {path}
        if began_with != number:
            kept |= set(folder.glob(f"round-{began_with}-*"))
        for other in set(folder.glob("round-*")) - kept:
            other.unlink(missing_ok=True)

    @property
    def _folder(self) -> Path:
        return self.folder / self.run / quote(json.dumps(self.client), safe="")


def checked_examples(data: Data, who: str) -> Examples:
    """Return the data as examples; what cannot be used is refused with a sentence about ``who``."""
    examples = as_examples(data, who)
    examples.check(who)
    return examples


def _flat_copy(model: nn.Module, config: TrainConfig) -> FlatModel:
    """Copy the model; the server, which has no code of it, may take any layer for its head."""
    is_unknown = config.head and config.head not in linear_layers(model)
    is_ignored = is_unknown and not config.algorithm.looks_at_head()
    return FlatModel(deepcopy(model), "" if is_ignored else config.head or None)


def _received(
    content: RecordDict, flat: FlatModel, arrays_key: str, config: ConfigRecord
) -> CadisMessage:
    try:
        return sent_by_server(content, flat.layout, arrays_key, config)
    except WrongTensorsError as error:
        raise CadisError(f"The global model does not fit this client's: {error}.") from None
