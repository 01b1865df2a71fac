"""The transport of the embedded engine: a pool of processes that share memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import TypeAlias

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.engine.evaluation import client_sample, equal_parts, grouped, is_due
from cadis.engine.federation import EngineSettings, Federation, choose_workers, sizes_of
from cadis.engine.pool import Pool, open_pool
from cadis.engine.shared_memory import SharedMemory, SharedMessage, nbytes_of, process_context
from cadis.engine.worker import (
    ClientTestTask,
    SentModel,
    SlotTooSmall,
    TestedClients,
    TestPart,
    TestTask,
    Trained,
    TrainTask,
    WorkerContext,
)
from cadis.server import Answers, AvailableClients, RoundPlan, RunState, Tested
from cadis.training import batch_sizes, dealt_into_stacks
from cadis.types import ClientId, ClientUpdate, Message

ContextMaker: TypeAlias = Callable[[SharedMemory, tuple[SharedMemory, ...]], WorkerContext]
"""What workers are to know, given what the server sends and where clients put their answers."""


class PoolTransport:
    """Delivers messages to workers on this machine. Nothing but names goes through pipes.

    The pool is opened when it is known how large messages are, and anew if they grow.
    """

    def __init__(
        self,
        job_of: ContextMaker,
        federation: Federation,
        owners: Federation,
        settings: EngineSettings,
        wanted: int,
        client_folder: Path,
        callbacks: Callbacks = NO_CALLBACKS,
    ) -> None:
        """Nothing is started yet.

        Args:
            job_of: makes what workers are to know.
            federation: who takes part.
            owners: whose data the global models are tested on: not who takes part, where a method
                pools clients.
            settings: how to run.
            wanted: k, how many take part in a round.
            client_folder: where the clients' memories are kept.
            callbacks: called as a round goes on.
        """
        self._job_of, self._federation, self._owners = job_of, federation, owners.client_ids
        self._settings, self._wanted = settings, wanted
        self._client_folder, self._callbacks = client_folder, callbacks
        self._place = {client: place for place, client in enumerate(federation.client_ids)}
        self._sizes = federation.sizes()
        self._steps = [len(batch_sizes(n, settings.local.batch_size)) for n in self._sizes]
        self._owned = sizes_of(owners.tested_on())
        part = wanted / len(federation.client_ids)
        sample = client_sample(len(self._owners), part, settings)
        self._tested = [client for client in sample if self._owned[client]]
        self._job: WorkerContext | None = None
        self._pool: Pool | None = None

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def presence(self) -> AvailableClients:
        """Everybody is there."""
        clients = self._federation.client_ids
        return AvailableClients(clients, self._wanted, len(clients))

    def everyone(self) -> Sequence[ClientId]:
        """All clients that have data."""
        return self._owners

    def train(self, plan: RoundPlan) -> Answers:
        """Train the participants; answers are in the order of the plan."""
        messages = list(plan.messages.values())
        models = [Message({name: model}) for name, model in plan.state.server.models.items()]
        sent = nbytes_of([*messages, *models])
        answer = max(nbytes_of([message]) for message in [*messages, *models])
        while answer:
            job, pool = self._opened(sent, answer)
            tasks = self._train_tasks(plan, job.sent.put(messages))
            results = self._train(tasks, pool, job.stacks)
            answer = max((r.size for r in results if isinstance(r, SlotTooSmall)), default=0)
        trained = [result for result in results if isinstance(result, Trained)]
        good = [
            ClientUpdate(
                client,
                self._sizes[self._place[client]],
                job.slots[task.slot].get(result.sent),
                result.memory,
            )
            for client, task, result in zip(plan.messages, tasks, trained, strict=True)
        ]
        return Answers(good, seconds=sum(result.seconds for result in trained))

    def remember(self, state: RunState, accepted: Sequence[ClientUpdate]) -> RunState:
        """Where the clients' memories are now."""
        new = {self._place[u.client_id]: u.state_file for u in accepted if u.state_file is not None}
        return replace(state, client_files={**state.client_files, **new})

    def test(self, state: RunState, model_name_for: Callable[[ClientId], str]) -> Tested:
        """Test all models on the test set and on clients' own data, each when it is time."""
        settings, last = self._settings, self._settings.rounds
        models = [Message({name: model}) for name, model in state.server.models.items()]
        job, pool = self._opened(nbytes_of(models), 1)
        placed = {
            name: SentModel(state.round, place)
            for name, place in zip(state.server.models, job.sent.put(models), strict=True)
        }
        parts: dict[str, list[TestPart]] = {}
        if is_due(state.round, settings.eval_every, last):
            parts = {name: self._test(model, pool) for name, model in placed.items()}
        accuracy, seconds = None, 0.0
        if is_due(state.round, settings.test_clients, last):
            accuracy, seconds = self._test_clients(placed, model_name_for, pool)
        return Tested(
            evaluations={
                name: reduce(add, (part.evaluation for part in own)) for name, own in parts.items()
            },
            client_accuracy=accuracy,
            seconds=seconds + sum(part.seconds for own in parts.values() for part in own),
        )

    def _opened(self, sent: int, answer: int) -> tuple[WorkerContext, Pool]:
        """A pool whose memory holds messages of these sizes, in bytes."""
        job, pool = self._job, self._pool
        if job is not None and pool is not None:
            if job.sent.size >= sent and job.slots[0].size >= answer:
                return job, pool
            sent, answer = max(sent, job.sent.size), max(answer, job.slots[0].size)
        self.close()
        context = process_context()
        slots = tuple(SharedMemory(answer, context) for _ in range(self._wanted))
        self._job = job = self._job_of(SharedMemory(sent, context), slots)
        workers = choose_workers(self._settings.workers, job.device, self._wanted)
        self._pool = pool = open_pool(job, workers, context)
        return job, pool

    def _train_tasks(self, plan: RoundPlan, placed: Sequence[SharedMessage]) -> list[TrainTask]:
        """A task for each participant, in their order."""
        clients = [self._place[client] for client in plan.messages]
        return [
            TrainTask(
                round=plan.number,
                client=client,
                slot=slot,
                received=message,
                participants=len(clients),
                memory=plan.state.client_files.get(client),
                memory_after=self._client_folder / _file_name(plan.number, client),
            )
            for slot, (client, message) in enumerate(zip(clients, placed, strict=True))
        ]

    def _train(
        self, tasks: list[TrainTask], pool: Pool, stacks: bool
    ) -> list[Trained | SlotTooSmall]:
        """Train, longest first; results are in the order of the tasks."""
        sizes = [self._sizes[task.client] for task in tasks]
        order = sorted(range(len(tasks)), key=lambda place: -self._steps[tasks[place].client])
        dealt = dealt_into_stacks(sizes) if stacks else [[place] for place in order]
        found = pool.run(
            [tuple(tasks[place] for place in places) for places in dealt],
            self._telling("training clients", len(tasks), of=len(dealt)),
        )
        results: dict[int, Trained | SlotTooSmall] = {}
        for places, stacked in zip(dealt, found, strict=True):
            assert isinstance(stacked, tuple)
            results |= dict(zip(places, stacked, strict=True))
        return [results[place] for place in range(len(tasks))]

    def _test(self, model: SentModel, pool: Pool) -> list[TestPart]:
        """Test a model on the test set; answers are in the order of its parts."""
        parts = equal_parts(len(self._federation.test))
        tasks = [TestTask(model, start, stop) for start, stop in parts]
        answers = pool.run(tasks, self._telling("testing", len(tasks)))
        return [answer for answer in answers if isinstance(answer, TestPart)]

    def _test_clients(
        self, placed: Mapping[str, SentModel], model_name_for: Callable[[ClientId], str], pool: Pool
    ) -> tuple[list[float | None], float]:
        """The accuracy on clients' own data, None where it is not tested; and the seconds."""
        users: dict[str, list[int]] = {}
        for client in self._tested:
            users.setdefault(model_name_for(self._owners[client]), []).append(client)
        tasks = [
            ClientTestTask(placed[name], group)
            for name, clients in users.items()
            for group in grouped(clients, self._owned)
        ]
        answers = pool.run(tasks, self._telling("testing on clients' data", len(tasks)))
        tested = [answer for answer in answers if isinstance(answer, TestedClients)]
        found: list[float | None] = [None] * len(self._owners)
        for task, answer in zip(tasks, tested, strict=True):
            for client, accuracy in zip(task.clients, answer.accuracy, strict=True):
                found[client] = accuracy
        return found, sum(answer.seconds for answer in tested)

    def _telling(self, what: str, total: int, of: int | None = None) -> Callable[[int], None]:
        """What tells how much is done, of a total that was put into so many tasks."""
        tasks = of or total
        return lambda done: self._callbacks.progress(what, done * total // tasks, total)


def _file_name(number: int, client: int) -> str:
    return f"client-{client}-round-{number}.safetensors"
