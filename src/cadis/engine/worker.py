"""The worker of a pool: it trains clients and tests global models.

:mod:`cadis.engine.pool` creates workers; the engine's transport sends them requests.
"""

import time
import traceback
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from cadis.algorithm import Algorithm, ClientOutput
from cadis.data import Samples, concatenate
from cadis.engine.federation import EngineSettings, Federation
from cadis.engine.shared_memory import Mailbox, SharedMessage, count_bytes
from cadis.errors import RunError
from cadis.models import FlatModel
from cadis.rng import derive_generator
from cadis.store import read_tensors, store_tensors
from cadis.training import (
    Client,
    Evaluation,
    StackedModel,
    apply_client_transforms,
    compute_accuracies,
    evaluate,
    passes_stack_trial,
    train_clients_stacked,
)
from cadis.types import ClientId, StoredFile, TensorState

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class WorkerContext:
    """Constant data of a run, which every worker gets when it starts.

    Attributes:
        module: the model's architecture, which workers copy.
        head: name of the classifier layer, "" if there is none.
        num_outputs: number of outputs of the model.
        algorithm: the method and its parts.
        federation: the clients that train, with their data.
        test_sets: test data of each client: its held-out data if there are any, else its training
            data. There is one test set per client, even if a method pools the data of all clients.
        settings: settings of the run.
        device: device of the models.
        allow_stacks: whether a worker may train several clients at once, if a trial succeeds.
    """

    module: nn.Module
    head: str
    num_outputs: int
    algorithm: Algorithm
    federation: Federation
    test_sets: Sequence[Samples]
    settings: EngineSettings
    device: torch.device
    allow_stacks: bool


@dataclass(frozen=True)
class TrainRequest:
    """Request to train one client.

    The worker reads the client's state from a file and writes it to a file. It may be as large as
    the model, and should not be in memory while other clients train.

    Attributes:
        round: number of the round.
        client_index: index of the client in the federation.
        slot: index of the slot for the client's message.
        received: message from the server.
        num_participants: number of clients that take part in the round.
        state_file: file of the client's state before the round; None if it has no state.
        state_path: path for the client's state after the round.
    """

    round: int
    client_index: int
    slot: int
    received: SharedMessage
    num_participants: int
    state_file: StoredFile | None
    state_path: Path


@dataclass(frozen=True)
class TrainReply:
    """Reply to a :class:`TrainRequest`.

    Attributes:
        nbytes: number of bytes that the client's message needs.
        sent: the client's message, in its slot; None if the slot is too small.
        state_file: file of the client's state after the round; None if it has no state.
        seconds: training time.
    """

    nbytes: int
    sent: SharedMessage | None = None
    state_file: StoredFile | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class SharedModel:
    """A global model in shared memory.

    Attributes:
        round: number of the round after which it is tested.
        message: message that contains the model.
    """

    round: int
    message: SharedMessage


class Worker:
    """Trains and tests on one thread; the pool calls its public methods."""

    def __init__(self, context: WorkerContext, mailbox: Mailbox) -> None:
        self.context, self.mailbox = context, mailbox
        module = deepcopy(context.module).to(context.device)
        self.model = FlatModel(module, context.head, context.num_outputs)
        self._stacked_model: StackedModel | None = None
        self._activity = ""
        self._loaded_model: SharedModel | None = None

    def run(self, work: "Callable[[Worker, _T], _R]", item: _T) -> _R:
        """Call a public method of this class; an error names the client or test that failed."""
        try:
            return work(self, item)
        except Exception as error:
            failure = RunError(f"{self._activity} failed: {type(error).__name__}: {error}")
            failure.add_note(traceback.format_exc())  # tracebacks cannot be sent through a pipe
            raise failure from error

    def train(self, requests: Sequence[TrainRequest]) -> list[TrainReply]:
        """Train clients, at once if their states and messages have the same shapes."""
        self._loaded_model = None
        stacks: dict[object, list[tuple[TrainRequest, TensorState]]] = {}
        for request in requests:
            self._activity = f"Training client {self._get_id(request)}"
            file = request.state_file
            state = read_tensors(request.state_path.parent, file) if file else {}
            is_stacked = len(requests) > 1 and self._can_stack
            key = _describe_shapes(request, state) if is_stacked else request.slot
            stacks.setdefault(key, []).append((request, state))
        replies: dict[int, TrainReply] = {}
        for stack in stacks.values():
            replies |= self._train(stack)
        return [replies[request.slot] for request in requests]

    def test(self, item: tuple[SharedModel, slice]) -> tuple[Evaluation, float]:
        """Test a global model on a slice of the test set; return the evaluation and the seconds."""
        started, (model, part) = time.perf_counter(), item
        self._load(model)
        samples = self.context.federation.test.take(part).to(self.context.device)
        evaluation = evaluate(self.model, samples, self.context.algorithm.task)
        return evaluation, time.perf_counter() - started

    def test_clients(self, item: tuple[SharedModel, Sequence[int]]) -> tuple[list[float], float]:
        """Test a global model on the test data of clients.

        A batch may have samples of several clients, which is faster.

        Args:
            item: the model, and the indices of the clients.

        Returns:
            The accuracy of each client, and the seconds.
        """
        started, (model, indices) = time.perf_counter(), item
        self._load(model)
        test_sets = [self.context.test_sets[index] for index in indices]
        samples = concatenate(test_sets).to(self.context.device)
        sizes = [len(test_set) for test_set in test_sets]
        accuracies = compute_accuracies(self.model, samples, sizes, self.context.algorithm.task)
        return accuracies, time.perf_counter() - started

    def _load(self, model: SharedModel) -> None:
        """Load a global model unless it is loaded already."""
        self._activity = "Testing the global model"
        if self._loaded_model != model:
            self.model.load(self.mailbox.broadcast.read(model.message).model)
            self._loaded_model = model

    def _train(self, stack: Sequence[tuple[TrainRequest, TensorState]]) -> dict[int, TrainReply]:
        """Train the clients of a stack, which may be a single client; return replies by slot."""
        ids = [str(self._get_id(request)) for request, _ in stack]
        self._activity = f"Training client{'s' * (len(ids) > 1)} {', '.join(ids)}"
        started = time.perf_counter()
        clients = [self._make_client(request, state) for request, state in stack]
        if len(clients) == 1:
            outputs = [self.context.algorithm.method.local(clients[0])]
        else:
            outputs = train_clients_stacked(clients, self._get_stacked_model(len(clients)))
        seconds = (time.perf_counter() - started) / len(clients)
        return {
            request.slot: self._write_reply(request, client, output, seconds)
            for (request, _), client, output in zip(stack, clients, outputs, strict=True)
        }

    @cached_property
    def _can_stack(self) -> bool:
        """Result of the trial: True if several clients can be trained at once."""
        context = self.context
        return context.allow_stacks and passes_stack_trial(
            context.module,
            context.head,
            context.algorithm,
            context.settings.local,
            context.federation.clients[0],
        )

    def _get_stacked_model(self, size: int) -> StackedModel:
        """Return a stacked model of at least ``size`` models."""
        if self._stacked_model is None or len(self._stacked_model.vectors) < size:
            module = deepcopy(self.context.module)
            self._stacked_model = StackedModel(module, self.context.head, size)
        return self._stacked_model

    def _get_id(self, request: TrainRequest) -> ClientId:
        return self.context.federation.client_ids[request.client_index]

    def _make_client(self, request: TrainRequest, state: TensorState) -> Client:
        context = self.context
        return Client(
            model=self.model,
            samples=context.federation.clients[request.client_index].to(context.device),
            algorithm=context.algorithm,
            settings=context.settings.local,
            round_number=request.round,
            received=self.mailbox.broadcast.read(request.received),
            state=state,
            generator=derive_generator(
                context.settings.seed, "train", request.round, self._get_id(request)
            ),
        )

    def _write_reply(
        self, request: TrainRequest, client: Client, output: ClientOutput, seconds: float
    ) -> TrainReply:
        """Write the message of a client to its slot, and its state to its file."""
        started, slot = time.perf_counter(), self.mailbox.slots[request.slot]
        seed = self.context.settings.seed
        output = apply_client_transforms(
            client, output, seed, self._get_id(request), request.num_participants
        )
        nbytes = count_bytes([output.message])
        if nbytes > slot.size:
            return TrainReply(nbytes)
        (sent,) = slot.write([output.message])
        state_file = store_tensors(request.state_path, output.state) if output.state else None
        return TrainReply(nbytes, sent, state_file, seconds + time.perf_counter() - started)


def _describe_shapes(request: TrainRequest, state: TensorState) -> object:
    """Return the names, shapes and dtypes of the tensors in a client's state and message."""
    state_shapes = ((name, tensor.shape, tensor.dtype) for name, tensor in state.items())
    received = ((path, ref.shape, ref.dtype) for path, ref in request.received.refs.items())
    return tuple(state_shapes), tuple(received)
