"""What a worker does: train one client, or test a global model on some examples."""

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import nn

from cadis.algorithm import Algorithm
from cadis.core import RunError
from cadis.data import Examples, joined
from cadis.engine.federation import EngineSettings, Federation
from cadis.engine.sharing import Placed, SharedMemory, room_for
from cadis.models import FlatModel
from cadis.runs import StoredFile, read_tensors, store_tensors
from cadis.training import Evaluation, accuracies, evaluate, reply_to


@dataclass(frozen=True)
class Job:
    """All that a worker needs to know, given to it once.

    Attributes:
        module: the model's architecture.
        head: name of its classifier layer.
        algorithm: whose client half is run.
        federation: everybody's data.
        owned: each client's data to test on; not the same for a method that pools clients.
        settings: how to train.
        device: where to train.
        sent: what the server sends; shared memory, written by the server between tasks.
        slots: where clients put what they send back; shared memory.
    """

    module: nn.Module
    head: str
    algorithm: Algorithm
    federation: Federation
    owned: Sequence[Examples]
    settings: EngineSettings
    device: torch.device
    sent: SharedMemory
    slots: tuple[SharedMemory, ...]


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
    received: Placed
    participants: int
    memory: StoredFile | None
    memory_after: Path


@dataclass(frozen=True)
class SentModel:
    """A global model after round number ``round``, and where it lies."""

    round: int
    placed: Placed


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


Task: TypeAlias = TrainTask | TestTask | ClientTestTask


@dataclass(frozen=True)
class Trained:
    """A client that has trained.

    Attributes:
        sent: what it sends, which lies in its slot.
        memory: the file that the client's memory is in, None if it has none.
        seconds: the time it took.
    """

    sent: Placed
    memory: StoredFile | None
    seconds: float


@dataclass(frozen=True)
class TooLarge:
    """What a client sends does not fit into its slot; it takes so many bytes."""

    size: int


@dataclass(frozen=True)
class Tested:
    """A global model on a part of the test set."""

    evaluation: Evaluation
    seconds: float


@dataclass(frozen=True)
class TestedClients:
    """A global model's accuracy on what each of some clients owns, in the order of the task."""

    accuracy: list[float]
    seconds: float


Result: TypeAlias = Trained | TooLarge | Tested | TestedClients


class Worker:
    """Does tasks, one after the other, on one thread."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.model = FlatModel(job.module.to(job.device), job.head)
        self._loaded: SentModel | None = None

    def do(self, task: Task) -> Result:
        """Do a task of either kind; whatever goes wrong is told with whom it went wrong."""
        try:
            if isinstance(task, TrainTask):
                return self.train(task)
            return self.test(task) if isinstance(task, TestTask) else self.test_clients(task)
        except Exception as error:
            who = "Testing the global model"
            if isinstance(task, TrainTask):
                who = f"Training client {self.job.federation.client_ids[task.client]}"
            failure = RunError(f"{who} failed: {type(error).__name__}: {error}")
            failure.add_note(traceback.format_exc())  # survives the way through a pipe
            raise failure from error

    def train(self, task: TrainTask) -> Trained | TooLarge:
        """Train one client."""
        started, self._loaded = time.perf_counter(), None
        job, slot = self.job, self.job.slots[task.slot]
        before = read_tensors(task.memory_after.parent, task.memory) if task.memory else {}
        reply = reply_to(
            job.sent.get(task.received),
            self.model,
            job.federation.clients[task.client].to(job.device),
            before,
            job.algorithm,
            job.settings.local,
            job.settings.seed,
            task.round,
            job.federation.client_ids[task.client],
            task.participants,
        )
        size = room_for([reply.message])
        if size > slot.size:
            return TooLarge(size)
        (sent,) = slot.put([reply.message])
        memory = store_tensors(task.memory_after, reply.memory) if reply.memory else None
        return Trained(sent, memory, time.perf_counter() - started)

    def test(self, task: TestTask) -> Tested:
        """Test a global model on a part of the test set."""
        started = time.perf_counter()
        self._load(task.model)
        part = self.job.federation.test.take(slice(task.start, task.stop))
        evaluation = evaluate(self.model, part.to(self.job.device), self.job.algorithm.task)
        return Tested(evaluation, time.perf_counter() - started)

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
