"""What a worker does: train one client, or test the global model on some examples."""

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import nn

from cadis.core import ModelState, RunError, generator_for
from cadis.data import Examples
from cadis.engine.federation import Federation
from cadis.engine.settings import EngineSettings
from cadis.engine.sharing import overwrite
from cadis.methods import Method
from cadis.models import FlatModel
from cadis.runs import StoredFile, read_tensors, store_tensors
from cadis.training import Evaluation, evaluate, train_locally


@dataclass(frozen=True)
class Job:
    """All that a worker needs to know, given to it once.

    Attributes:
        module: the model's architecture.
        head: name of its classifier layer.
        method: whose client half is run.
        federation: everybody's data.
        owned: each client's data to test on; not the same for a method that pools clients.
        settings: how to train.
        device: where to train.
        sent: the global model; shared memory, written by the server between rounds.
        slots: where trained models are put; shared memory.
    """

    module: nn.Module
    head: str
    method: Method
    federation: Federation
    owned: Sequence[Examples]
    settings: EngineSettings
    device: torch.device
    sent: ModelState
    slots: tuple[ModelState, ...]


@dataclass(frozen=True)
class TrainTask:
    """Train client number ``client`` and put its model into slot ``slot``.

    The client's memory is read from and written to files: it is its own, may be as large as the
    model, and need not be in memory while others train.

    Attributes:
        round: the number of the round.
        client: the number of the client.
        slot: where to put its model.
        memory: the client's memory before, None if it has none.
        memory_after: the file to put it into afterwards.
    """

    round: int
    client: int
    slot: int
    memory: StoredFile | None
    memory_after: Path


@dataclass(frozen=True)
class TestTask:
    """Test the global model on the test examples from ``start`` to ``stop``."""

    start: int
    stop: int


@dataclass(frozen=True)
class ClientTestTask:
    """Test the global model on what client number ``client`` owns."""

    client: int


Task: TypeAlias = TrainTask | TestTask | ClientTestTask


@dataclass(frozen=True)
class Trained:
    """A trained client, besides its model.

    Attributes:
        metrics: scalars for the server.
        finite: whether the model has only finite numbers.
        memory: the file that the client's memory is in, None if it has none.
        seconds: the time it took.
    """

    metrics: dict[str, float]
    finite: bool
    memory: StoredFile | None
    seconds: float


@dataclass(frozen=True)
class Tested:
    """The global model on a part of the test set, or on what a client owns."""

    evaluation: Evaluation
    seconds: float


Result: TypeAlias = Trained | Tested


class Worker:
    """Does tasks, one after the other, on one thread."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.model = FlatModel(job.module.to(job.device), job.head)

    def do(self, task: Task) -> Result:
        """Do a task of either kind; whatever goes wrong is told with whom it went wrong."""
        try:
            return self.train(task) if isinstance(task, TrainTask) else self.test(task)
        except Exception as error:
            who = "Testing the global model"
            if isinstance(task, TrainTask):
                who = f"Training client {self.job.federation.client_ids[task.client]}"
            failure = RunError(f"{who} failed: {type(error).__name__}: {error}")
            failure.add_note(traceback.format_exc())  # survives the way through a pipe
            raise failure from error

    def train(self, task: TrainTask) -> Trained:
        """Train one client."""
        started = time.perf_counter()
        job = self.job
        before = read_tensors(task.memory_after.parent, task.memory) if task.memory else {}
        client_id = job.federation.client_ids[task.client]
        result = train_locally(
            self.model,
            job.method,
            job.federation.clients[task.client].to(job.device),
            job.sent,
            {name: tensor.to(job.device) for name, tensor in before.items()},
            job.settings.local,
            generator_for(job.settings.seed, "train", task.round, client_id),
        )
        trained = self.model.state()
        overwrite(job.slots[task.slot], trained)
        memory = None
        if result.client_state:
            memory = store_tensors(task.memory_after, result.client_state)
        return Trained(
            metrics=result.metrics,
            finite=trained.is_finite(),
            memory=memory,
            seconds=time.perf_counter() - started,
        )

    def test(self, task: TestTask | ClientTestTask) -> Tested:
        """Test the global model on a part of the test set, or on what a client owns."""
        started = time.perf_counter()
        self.model.load(self.job.sent)
        if isinstance(task, ClientTestTask):
            part = self.job.owned[task.client]
        else:
            part = self.job.federation.test.take(slice(task.start, task.stop))
        evaluation = evaluate(self.model, part.to(self.job.device))
        return Tested(evaluation, time.perf_counter() - started)
