"""What a worker does: train clients, or test a global model on some examples."""

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
from cadis.data import Examples, joined
from cadis.engine.federation import EngineSettings, Federation
from cadis.engine.shared_memory import Mailbox, SharedMessage, nbytes_of
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
from cadis.types import ClientId, StoredFile, TensorState

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class WorkerContext:
    """All that a worker needs to know, given to it once.

    Attributes:
        module: the model's architecture, which workers copy.
        head: name of its classifier layer, "" if it has none.
        num_outputs: how many outputs it has.
        algorithm: whose client half is run.
        federation: everybody's data.
        owned: each client's own data to test on; not those that it trains on where some are held
            out, or where a method pools clients.
        settings: how to train.
        device: where to train.
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
    stacks: bool


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
class Trained:
    """A client that has trained: its update, as it goes through a pipe.

    Attributes:
        nbytes: how many bytes of its slot the update takes.
        sent: the update, which lies in the slot; None if it does not fit.
        memory: the file that the client's memory is in, None if it has none.
        seconds: the time it took.
    """

    nbytes: int
    sent: SharedMessage | None = None
    memory: StoredFile | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class SentModel:
    """A global model after round number ``round``, and where it lies."""

    round: int
    placed: SharedMessage


class Worker:
    """Does tasks, one after the other, on one thread."""

    def __init__(self, job: WorkerContext, mailbox: Mailbox) -> None:
        self.job, self.mailbox = job, mailbox
        self.model = FlatModel(deepcopy(job.module).to(job.device), job.head, job.num_outputs)
        self._stacked: StackedModel | None = None
        self._what = ""
        self._loaded: SentModel | None = None

    def do(self, work: "Callable[[Worker, _T], _R]", task: _T) -> _R:
        """Do a task by one of the methods below; an error names whom it went wrong with."""
        try:
            return work(self, task)
        except Exception as error:
            failure = RunError(f"{self._what} failed: {type(error).__name__}: {error}")
            failure.add_note(traceback.format_exc())  # survives the way through a pipe
            raise failure from error

    def train(self, tasks: Sequence[TrainTask]) -> list[Trained]:
        """Train clients: those at once that remember, and are sent, tensors of the same form."""
        self._loaded = None
        stacks: dict[object, list[tuple[TrainTask, TensorState]]] = {}
        for each in tasks:
            self._what = f"Training client {self._id(each)}"
            memory = read_tensors(each.memory_after.parent, each.memory) if each.memory else {}
            form = _form(each, memory) if len(tasks) > 1 and self._stacks else each.slot
            stacks.setdefault(form, []).append((each, memory))
        results: dict[int, Trained] = {}
        for stack in stacks.values():
            results |= self._train(stack)
        return [results[each.slot] for each in tasks]

    def test(self, task: tuple[SentModel, slice]) -> tuple[Evaluation, float]:
        """Test a global model on a part of the test set; return the seconds, too."""
        started, (model, part) = time.perf_counter(), task
        self._load(model)
        examples = self.job.federation.test.take(part).to(self.job.device)
        evaluation = evaluate(self.model, examples, self.job.algorithm.task)
        return evaluation, time.perf_counter() - started

    def test_clients(self, task: tuple[SentModel, Sequence[int]]) -> tuple[list[float], float]:
        """Test a global model on what each of some clients owns; return the seconds, too.

        The clients are given by their numbers; a batch may hold examples of several.
        """
        started, (model, clients) = time.perf_counter(), task
        self._load(model)
        owned = [self.job.owned[client] for client in clients]
        together = joined(owned).to(self.job.device)
        sizes = [len(examples) for examples in owned]
        accuracy = accuracies(self.model, together, sizes, self.job.algorithm.task)
        return accuracy, time.perf_counter() - started

    def _load(self, model: SentModel) -> None:
        """Load a global model, unless it is what was loaded last."""
        self._what = "Testing the global model"
        if self._loaded != model:
            self.model.load(self.mailbox.sent.get(model.placed).model)
            self._loaded = model

    def _train(self, stack: Sequence[tuple[TrainTask, TensorState]]) -> dict[int, Trained]:
        """Train some clients at once, or a single one by itself; results by slot."""
        ids = [str(self._id(task)) for task, _ in stack]
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
            job.module, job.head, job.algorithm, job.settings.local, job.federation.clients[0]
        )

    def _models(self, number: int) -> StackedModel:
        """Room for so many models."""
        if self._stacked is None or len(self._stacked.memory) < number:
            self._stacked = StackedModel(deepcopy(self.job.module), self.job.head, number)
        return self._stacked

    def _id(self, task: TrainTask) -> ClientId:
        return self.job.federation.client_ids[task.client]

    def _client(self, task: TrainTask, memory: TensorState) -> Client:
        job = self.job
        return Client(
            model=self.model,
            examples=job.federation.clients[task.client].to(job.device),
            algorithm=job.algorithm,
            settings=job.settings.local,
            number=task.round,
            received=self.mailbox.sent.get(task.received),
            memory=memory,
            generator=generator_for(job.settings.seed, "train", task.round, self._id(task)),
        )

    def _sent(
        self, task: TrainTask, client: Client, output: ClientOutput, seconds: float
    ) -> Trained:
        """Put what a client sends into its slot, and what it remembers into its file."""
        started, slot = time.perf_counter(), self.mailbox.slots[task.slot]
        seed = self.job.settings.seed
        output = sent_by(client, output, seed, self._id(task), task.participants)
        size = nbytes_of([output.message])
        if size > slot.size:
            return Trained(size)
        (sent,) = slot.put([output.message])
        memory = store_tensors(task.memory_after, output.state) if output.state else None
        return Trained(size, sent, memory, seconds + time.perf_counter() - started)


def _form(task: TrainTask, memory: TensorState) -> object:
    """Names and shapes of what a client remembers, and of what it is sent."""
    remembered = ((name, tensor.shape, tensor.dtype) for name, tensor in memory.items())
    sent = ((path, place.shape, place.dtype) for path, place in task.received.places.items())
    return tuple(remembered), tuple(sent)
