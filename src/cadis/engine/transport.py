"""The transport of the embedded engine: a pool of processes that share memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import torch

from cadis._io import Callbacks
from cadis.engine.federation import EngineSettings, sizes_of
from cadis.engine.pool import Pool, choose_workers, open_pool
from cadis.engine.shared_memory import Mailbox, SharedMessage, nbytes_of, process_context
from cadis.engine.worker import SentModel, Trained, TrainTask, Worker, WorkerContext
from cadis.rng import generator_for
from cadis.server import AvailableClients, Rejection, RoundPlan, RunState, Tested
from cadis.training import Evaluation, batch_sizes, dealt_into_stacks
from cadis.types import ClientId, ClientUpdate, Message, ModelState

_PART = 256
"""Examples that are tested as one task, about."""

_SHARE = 0.1
"""What testing clients' own data may cost, as a part of the training since the last such test."""

_TRAINED = 3
"""Training on an example takes as long as testing on so many: forward, backward, and the step."""

_FEW = 100
"""So many clients are always tested: of fewer, the worst one says little."""


class PoolTransport:
    """Delivers messages to workers on this machine. Nothing but names goes through pipes.

    The pool is opened when it is known how large messages are, and anew if they grow.
    """

    def __init__(
        self,
        job: WorkerContext,
        owners: Sequence[ClientId],
        wanted: int,
        client_folder: Path,
        callbacks: Callbacks,
    ) -> None:
        """Start nothing yet.

        The owners are those whose data the global models are tested on: not who takes part, where
        a method pools clients. So many as are wanted, k, take part in a round.
        """
        self._job, self._owners, self._wanted = job, owners, wanted
        self._client_folder, self._callbacks = client_folder, callbacks
        self._ids, self._settings = job.federation.client_ids, job.settings
        self._place = {client: place for place, client in enumerate(self._ids)}
        self._sizes = job.federation.sizes()
        batch_size = self._settings.local.batch_size
        self._steps = [len(batch_sizes(n, batch_size)) for n in self._sizes]
        self._owned = sizes_of(job.owned)
        sample = client_sample(len(owners), wanted / len(self._ids), self._settings)
        self._tested = [client for client in sample if self._owned[client]]
        self._opened: tuple[Mailbox, Pool] | None = None

    def close(self) -> None:
        """End the workers."""
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    def presence(self) -> AvailableClients:
        """Everybody is there."""
        return AvailableClients(self._ids, self._wanted, len(self._ids))

    def everyone(self) -> Sequence[ClientId]:
        """All clients that have data."""
        return self._owners

    def train(self, plan: RoundPlan) -> tuple[list[ClientUpdate], list[Rejection]]:
        """Train the participants; nobody fails."""
        messages = list(plan.messages.values())
        models = _each_alone(plan.state.server.models)
        total = nbytes_of([*messages, *models])
        largest = max(nbytes_of([message]) for message in [*messages, *models])
        while True:
            mailbox, pool = self._open(total, largest)
            results = self._train(self._train_tasks(plan, mailbox.sent.put(messages)), pool)
            largest = max(result.nbytes for result in results)
            if largest <= mailbox.slots[0].size:
                break
        updates = [
            ClientUpdate(
                client,
                self._sizes[self._place[client]],
                mailbox.slots[slot].get(result.sent),
                result.memory,
                result.seconds,
            )
            for slot, (client, result) in enumerate(zip(plan.messages, results, strict=True))
            if result.sent is not None
        ]
        return updates, []

    def remember(self, state: RunState, accepted: Sequence[ClientUpdate]) -> RunState:
        """Where the clients' memories are now."""
        new = {self._place[u.client_id]: u.state_file for u in accepted if u.state_file is not None}
        return replace(state, client_files={**state.client_files, **new})

    def test(self, state: RunState, model_name_for: Callable[[ClientId], str]) -> Tested:
        """Test all models on the test set and on clients' own data, each when it is time."""
        settings, last = self._settings, self._settings.rounds
        models = _each_alone(state.server.models)
        mailbox, pool = self._open(nbytes_of(models), 1)
        placed = {
            name: SentModel(state.round, place)
            for name, place in zip(state.server.models, mailbox.sent.put(models), strict=True)
        }
        evaluations: dict[str, Evaluation] = {}
        accuracy, seconds = None, 0.0
        if is_due(state.round, settings.eval_every, last):
            for name, model in placed.items():
                evaluations[name], spent = self._test(model, pool)
                seconds += spent
        if is_due(state.round, settings.test_clients, last):
            accuracy, spent = self._test_clients(placed, model_name_for, pool)
            seconds += spent
        return Tested(evaluations, client_accuracy=accuracy, seconds=seconds)

    def _open(self, sent: int, slot: int) -> tuple[Mailbox, Pool]:
        """Open a pool whose memory holds messages of these sizes, in bytes, unless it is open."""
        if self._opened is not None:
            mailbox, _ = self._opened
            before = mailbox.sent.size, mailbox.slots[0].size
            if before[0] >= sent and before[1] >= slot:
                return self._opened
            sent, slot = max(sent, before[0]), max(slot, before[1])
        self.close()
        context = process_context()
        mailbox = Mailbox.new(sent, slot, self._wanted, context)
        workers = choose_workers(self._settings.workers, self._job.device, self._wanted)
        self._opened = mailbox, open_pool(self._job, mailbox, workers, context)
        return self._opened

    def _train_tasks(self, plan: RoundPlan, placed: Sequence[SharedMessage]) -> list[TrainTask]:
        """A task for each participant, in their order."""
        clients = [self._place[client] for client in plan.messages]
        name = f"client-{{}}-round-{plan.number}.safetensors"
        return [
            TrainTask(
                round=plan.number,
                client=client,
                slot=slot,
                received=message,
                participants=len(clients),
                memory=plan.state.client_files.get(client),
                memory_after=self._client_folder / name.format(client),
            )
            for slot, (client, message) in enumerate(zip(clients, placed, strict=True))
        ]

    def _train(self, tasks: Sequence[TrainTask], pool: Pool) -> list[Trained]:
        """Train, longest first; results are in the order of the tasks."""
        sizes = [self._sizes[task.client] for task in tasks]
        order = sorted(range(len(tasks)), key=lambda place: -self._steps[tasks[place].client])
        dealt = dealt_into_stacks(sizes) if self._job.stacks else [[place] for place in order]
        found = pool.run(
            Worker.train,
            [[tasks[place] for place in places] for places in dealt],
            self._telling("training clients", len(tasks), of=len(dealt)),
        )
        results: dict[int, Trained] = {}
        for places, stacked in zip(dealt, found, strict=True):
            results |= dict(zip(places, stacked, strict=True))
        return [results[place] for place in range(len(tasks))]

    def _test(self, model: SentModel, pool: Pool) -> tuple[Evaluation, float]:
        """Test a model on the test set; return the seconds, too."""
        parts = equal_parts(len(self._job.federation.test))
        tasks = [(model, slice(*part)) for part in parts]
        found = pool.run(Worker.test, tasks, self._telling("testing", len(tasks)))
        evaluation = reduce(add, (evaluation for evaluation, _ in found))
        return evaluation, sum(seconds for _, seconds in found)

    def _test_clients(
        self, placed: Mapping[str, SentModel], model_name_for: Callable[[ClientId], str], pool: Pool
    ) -> tuple[list[float | None], float]:
        """The accuracy on clients' own data, None where it is not tested; and the seconds."""
        users: dict[str, list[int]] = {}
        for client in self._tested:
            users.setdefault(model_name_for(self._owners[client]), []).append(client)
        tasks = [
            (placed[name], group)
            for name, clients in users.items()
            for group in grouped(clients, self._owned)
        ]
        told = self._telling("testing on clients' data", len(tasks))
        found: list[float | None] = [None] * len(self._owners)
        seconds = 0.0
        for (_, group), (accuracies, spent) in zip(
            tasks, pool.run(Worker.test_clients, tasks, told), strict=True
        ):
            seconds += spent
            for client, accuracy in zip(group, accuracies, strict=True):
                found[client] = accuracy
        return found, seconds

    def _telling(self, what: str, total: int, of: int | None = None) -> Callable[[int], None]:
        """What tells how much is done, of a total that was put into so many tasks."""
        tasks = of or total
        return lambda done: self._callbacks.progress(what, done * total // tasks, total)


def _each_alone(models: Mapping[str, ModelState]) -> list[Message]:
    return [Message({name: model}) for name, model in models.items()]


def is_due(number: int, every: int, last: int) -> bool:
    """Whether a test that is made every so many rounds, 0 for never, is made after this one."""
    return every > 0 and (number % every == 0 or number == last)


def equal_parts(num_examples: int) -> list[tuple[int, int]]:
    """Equal parts of a test set, from where to where."""
    parts = torch.arange(num_examples).tensor_split(-(-num_examples // _PART))
    return [(int(part[0]), int(part[-1]) + 1) for part in parts]


def client_sample(num_clients: int, part: float, settings: EngineSettings) -> list[int]:
    """On whose data models are tested, the same clients every time: all, unless there are many.

    Of many, as many are drawn as can be tested in a tenth of the time that is trained between two
    tests, and at least 100. A smaller sample is part of every larger one of the same seed. A round
    trains the given part of all clients.
    """
    rounds = min(settings.test_clients, settings.rounds)
    trained = rounds * part * num_clients * settings.local.epochs  # in passes over a client's data
    wanted = max(_FEW, int(_SHARE * _TRAINED * trained))
    if wanted >= num_clients:
        return list(range(num_clients))
    order = torch.randperm(num_clients, generator=generator_for(settings.seed, "test clients"))
    return sorted(order[:wanted].tolist())


def grouped(clients: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Clients in groups that have enough examples, by size, to be tested together; in order."""
    groups: list[list[int]] = []
    filled = _PART
    for client in clients:
        if filled >= _PART:
            groups.append([])
            filled = 0
        groups[-1].append(client)
        filled += sizes[client]
    return [tuple(group) for group in groups]
