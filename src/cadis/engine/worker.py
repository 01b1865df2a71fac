"""What a worker does: train one client, or test a global model on some examples."""

import time
import traceback
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import torch
from torch import nn

from cadis.algorithm import Algorithm, ClientOutput
from cadis.data import Examples, joined
from cadis.engine.federation import EngineSettings, Federation
from cadis.engine.shared_memory import SharedMemory, SharedMessage, nbytes_of
from cadis.errors import RunError
from cadis.models import FlatModel
from cadis.rng import generator_for
from cadis.store import read_tensors, store_tensors
from cadis.training import (
    Client,
    Evaluation,
    StackedModel,
    accuracies,
    evaluate,
    replies_together,
    sent_by,
    stacks_in_trial,
)
from cadis.types import StoredFile, TensorState


@dataclass(frozen=True)
class WorkerContext:
    """All that a worker needs to know, given to it once.

    Attributes:
        module: the model's architecture.
        head: name of its classifier layer, "" if it has none.
        num_outputs: how many outputs it has.
        algorithm: whose client half is run.
        federation: everybody's data.
        owned: each client's own data to test on; not those that it trains on where some are held
            out, or where a method pools clients.
        settings: how to train.
        device: where to train.
        sent: what the server sends; shared memory, written by the server between tasks.
        slots: where clients put what they send back; shared memory.
        stacks: whether several clients may be trained at once, if a trial succeeds.
    """

    module: nn.Module
    head: str
    num_outputs: int
    algorithm: Algorithm
    federation: Federation
    owned: Sequence[Examples]
    settings: EngineSettings
    device: torch.device
    sent: SharedMemory
    slots: tuple[SharedMemory, ...]
    stacks: bool = False


@dataclass(frozen=True)
class TrainTask:
    """Train client number ``client``, and put what it sends into slot ``slot``.

    The client's memory is read from and written to files: it is its own, may be as large as the
    model, and need not be in memory while others train.

    Attributes:
        round: the number of the round.
        client: the number of the client.
        slot: where to put what it sends.
        received: what the server sends it.
        participants: how many clients take part in the round.
        memory: the client's memory before, None if it has none.
        memory_after: the file to put it into afterwards.
    """

    round: int
    client: int
    slot: int
    received: SharedMessage
    participants: int
    memory: StoredFile | None
    memory_after: Path


@dataclass(frozen=True)
class SentModel:
    """A global model after round number ``round``, and where it lies."""

    round: int
    placed: SharedMessage


@dataclass(frozen=True)
class TestTask:
    """Test a global model on the test examples from ``start`` to ``stop``."""

    model: SentModel
    start: int
    stop: int


@dataclass(frozen=True)
class ClientTestTask:
    """Test a global model on what some clients own, each by itself, given by their numbers."""

    model: SentModel
    clients: tuple[int, ...]


WorkItem: TypeAlias = tuple[TrainTask, ...] | TestTask | ClientTestTask
"""Work for one worker; clients of one tuple are trained at once if that is possible."""


@dataclass(frozen=True)
class Trained:
    """A client that has trained.

    Attributes:
        sent: what it sends, which lies in its slot.
        memory: the file that the client's memory is in, None if it has none.
        seconds: the time it took.
    """

    sent: SharedMessage
    memory: StoredFile | None
    seconds: float


@dataclass(frozen=True)
class SlotTooSmall:
    """What a client sends does not fit into its slot; it takes so many bytes."""

    size: int


@dataclass(frozen=True)
class TestPart:
    """A global model on a part of the test set."""

    evaluation: Evaluation
    seconds: float


@dataclass(frozen=True)
class TestedClients:
    """A global model's accuracy on what each of some clients owns, in the order of the task."""

    accuracy: list[float]
    seconds: float


Result: TypeAlias = tuple[Trained | SlotTooSmall, ...] | TestPart | TestedClients
"""What came of a task, in its order."""


class Worker:
    """Does tasks, one after the other, on one thread."""

    def __init__(self, job: WorkerContext) -> None:
        self.job = job
        # As it was before it was taken over, where stacks are made of it.
        self._module = deepcopy(job.module) if job.stacks else job.module
        self._stacked: StackedModel | None = None
        self.model = FlatModel(job.module.to(job.device), job.head, job.num_outputs)
        self._what = ""
        self._loaded: SentModel | None = None

    def do(self, task: WorkItem) -> Result:
        """Do a task of either kind; whatever goes wrong is told with whom it went wrong."""
        try:
            if isinstance(task, tuple):
                return self.train(task)
            self._what = "Testing the global model"
            return self.test(task) if isinstance(task, TestTask) else self.test_clients(task)
        except Exception as error:
            failure = RunError(f"{self._what} failed: {type(error).__name__}: {error}")
            failure.add_note(traceback.format_exc())  # survives the way through a pipe
            raise failure from error

    def train(self, tasks: tuple[TrainTask, ...]) -> tuple[Trained | SlotTooSmall, ...]:
        """Train clients: those at once that remember, and are sent, tensors of the same form."""
        self._loaded = None
        stacks: dict[object, list[tuple[TrainTask, TensorState]]] = {}
        for each in tasks:
            memory = self._memory(each)
            form = _form(each, memory) if len(tasks) > 1 and self._stacks else each.slot
            stacks.setdefault(form, []).append((each, memory))
        results: dict[int, Trained | SlotTooSmall] = {}
        for stack in stacks.values():
            results |= self._train(stack)
        return tuple(results[each.slot] for each in tasks)

    def _train(
        self, stack: Sequence[tuple[TrainTask, TensorState]]
    ) -> dict[int, Trained | SlotTooSmall]:
        """Train some clients at once, or a single one by itself; results by slot."""
        ids = [str(self.job.federation.client_ids[task.client]) for task, _ in stack]
        self._what = f"Training client{'s' * (len(ids) > 1)} {', '.join(ids)}"
        started = time.perf_counter()
        clients = [self._client(task, memory) for task, memory in stack]
        if len(clients) == 1:
            outputs = [self.job.algorithm.method.local(clients[0])]
        else:
            outputs = replies_together(clients, self._models(len(clients)))
        spent = (time.perf_counter() - started) / len(clients)
        return {
            task.slot: self._sent(task, client, output, spent)
            for (task, _), client, output in zip(stack, clients, outputs, strict=True)
        }

    @cached_property
    def _stacks(self) -> bool:
        """Whether several clients can be trained at once; all workers find the same."""
        job = self.job
        return job.stacks and stacks_in_trial(
            self._module, job.head, job.algorithm, job.settings.local, job.federation.clients[0]
        )

    def _models(self, number: int) -> StackedModel:
        """Room for so many models."""
        if self._stacked is None or len(self._stacked.memory) < number:
            self._stacked = StackedModel(deepcopy(self._module), self.job.head, number)
        return self._stacked

    def _memory(self, task: TrainTask) -> TensorState:
        self._what = f"Training client {self.job.federation.client_ids[task.client]}"
        return read_tensors(task.memory_after.parent, task.memory) if task.memory else {}

    def _client(self, task: TrainTask, memory: TensorState) -> Client:
        job = self.job
        seed, who = job.settings.seed, job.federation.client_ids[task.client]
        return Client(
            model=self.model,
            examples=job.federation.clients[task.client].to(job.device),
            algorithm=job.algorithm,
            settings=job.settings.local,
            number=task.round,
            received=job.sent.get(task.received),
            memory=memory,
            generator=generator_for(seed, "train", task.round, who),
        )

    def _sent(
        self, task: TrainTask, client: Client, output: ClientOutput, seconds: float
    ) -> Trained | SlotTooSmall:
        """Put what a client sends into its slot, and what it remembers into its file."""
        job, slot = self.job, self.job.slots[task.slot]
        who = job.federation.client_ids[task.client]
        started = time.perf_counter()
        output = sent_by(client, output, job.settings.seed, who, task.participants)
        size = nbytes_of([output.message])
        if size > slot.size:
            return SlotTooSmall(size)
        (sent,) = slot.put([output.message])
        memory = store_tensors(task.memory_after, output.state) if output.state else None
        return Trained(sent, memory, seconds + time.perf_counter() - started)

    def test(self, task: TestTask) -> TestPart:
        """Test a global model on a part of the test set."""
        started = time.perf_counter()
        self._load(task.model)
        part = self.job.federation.test.take(slice(task.start, task.stop))
        evaluation = evaluate(self.model, part.to(self.job.device), self.job.algorithm.task)
        return TestPart(evaluation, time.perf_counter() - started)

    def test_clients(self, task: ClientTestTask) -> TestedClients:
        """Test a global model on what some clients own, in batches that may hold several's."""
        started = time.perf_counter()
        self._load(task.model)
        owned = [self.job.owned[client] for client in task.clients]
        together = joined(owned).to(self.job.device)
        sizes = [len(examples) for examples in owned]
        accuracy = accuracies(self.model, together, sizes, self.job.algorithm.task)
        return TestedClients(accuracy, time.perf_counter() - started)

    def _load(self, model: SentModel) -> None:
        """Load a global model, unless it is what was loaded last."""
        if self._loaded != model:
            self.model.load(self.job.sent.get(model.placed).model)
            self._loaded = model


def _form(task: TrainTask, memory: TensorState) -> object:
    """Names and shapes of what a client remembers, and of what it is sent."""
    remembered = ((name, tensor.shape, tensor.dtype) for name, tensor in memory.items())
    sent = ((path, place.shape, place.dtype) for path, place in task.received.places.items())
    return tuple(remembered), tuple(sent)
