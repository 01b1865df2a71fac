"""The transport of the embedded engine: it sends messages to workers through shared memory.

:class:`~cadis.engine.Engine` creates it, and the server calls it in every round.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import torch

from cadis._io import Callbacks
from cadis.engine.federation import EngineSettings, count_samples
from cadis.engine.pool import Pool, choose_workers, create_pool
from cadis.engine.shared_memory import Mailbox, SharedMessage, count_bytes, get_mp_context
from cadis.engine.worker import SharedModel, TrainReply, TrainRequest, Worker, WorkerContext
from cadis.rng import derive_generator
from cadis.server import AvailableClients, Rejection, RoundPlan, RunState, TestResult
from cadis.training import Evaluation, compute_batch_sizes, split_into_stacks
from cadis.types import ClientId, ClientUpdate, Message, ModelState

_TEST_SIZE = 256
"""Approximate number of test samples in one work item."""

_TEST_COST = 0.1
"""Target time of a test on clients' own data, as a share of the training time between two tests."""

_TRAIN_COST = 3
"""Time to train on a sample (forward, backward, step) divided by the time to test on it."""

_MAX_CLIENTS_LISTED = 10
"""Maximum number of clients that a message names; the others are counted."""

_MIN_TEST_CLIENTS = 100
"""Minimum number of clients to test; the worst client of a smaller sample would say little."""


class PoolTransport:
    """Transport to workers on this machine.

    The pool starts in the first round, when the size of messages is known, and starts again with
    more shared memory if messages grow.
    """

    def __init__(
        self,
        context: WorkerContext,
        data_clients: Sequence[ClientId],
        num_participants: int,
        client_folder: Path,
        callbacks: Callbacks,
    ) -> None:
        """Prepare the transport; workers start in the first round.

        Args:
            context: constant data of the workers.
            data_clients: ids of the clients on whose data models are tested. These clients also
                train, unless the method pools their data: then a single client named "everyone"
                trains.
            num_participants: k, the number of participants in a round.
            client_folder: folder for the clients' states.
            callbacks: called with the progress.
        """
        self._context, self._data_clients = context, data_clients
        self._num_participants = num_participants
        self._client_folder, self._callbacks = client_folder, callbacks
        self._ids, self._settings = context.federation.client_ids, context.settings
        self._index_by_id = {client: index for index, client in enumerate(self._ids)}
        self._sizes = context.federation.sizes()
        batch_size = self._settings.local.batch_size
        self._steps = [len(compute_batch_sizes(n, batch_size)) for n in self._sizes]
        self._test_sizes = count_samples(context.test_sets)
        participation = num_participants / len(self._ids)
        # Indices into data_clients; clients without test samples are not tested.
        sample = sample_test_clients(len(data_clients), participation, self._settings)
        self._tested_indices = [index for index in sample if self._test_sizes[index]]
        self._pool: tuple[Mailbox, Pool] | None = None

    def close(self) -> None:
        """Terminate the workers."""
        if self._pool is not None:
            self._pool[1].close()
            self._pool = None

    def available_clients(self) -> AvailableClients:
        """Return all clients, since all are always available here."""
        return AvailableClients(self._ids, self._num_participants, len(self._ids))

    def all_clients(self) -> Sequence[ClientId]:
        """Return all clients that have data."""
        return self._data_clients

    def train(self, plan: RoundPlan) -> tuple[list[ClientUpdate], list[Rejection]]:
        """Train the participants; the list of rejections is empty, since no client fails here."""
        messages = list(plan.messages.values())
        models = _to_messages(plan.state.server.models)
        total = count_bytes([*messages, *models])
        largest = max(count_bytes([message]) for message in [*messages, *models])
        while True:  # train again with larger slots if a client's message is larger than its slot
            mailbox, pool = self._open(total, largest)
            requests = self._make_requests(plan, mailbox.broadcast.write(messages))
            replies = self._train(requests, pool)
            largest = max(reply.nbytes for reply in replies)
            if largest <= mailbox.slots[0].size:
                break
        updates = []
        for slot, (client, reply) in enumerate(zip(plan.messages, replies, strict=True)):
            assert reply.sent is not None  # its slot was large enough
            message = mailbox.slots[slot].read(reply.sent)
            size = self._sizes[self._index_by_id[client]]
            updates.append(ClientUpdate(client, size, message, reply.state_file, reply.seconds))
        return updates, []

    def update_state(self, state: RunState, accepted: Sequence[ClientUpdate]) -> RunState:
        """Add the new files of the clients' states to ``state``."""
        new_files = {
            self._index_by_id[update.client_id]: update.state_file
            for update in accepted
            if update.state_file is not None
        }
        return replace(state, client_files={**state.client_files, **new_files})

    def test(self, state: RunState, model_name_for: Callable[[ClientId], str]) -> TestResult:
        """Test all models on the test set and on clients' own data, if these tests are due."""
        settings, last = self._settings, self._settings.rounds
        models = _to_messages(state.global_models)
        mailbox, pool = self._open(count_bytes(models), 1)
        shared_messages = mailbox.broadcast.write(models)
        shared_models = {
            name: SharedModel(state.round, message)
            for name, message in zip(state.global_models, shared_messages, strict=True)
        }
        evaluations: dict[str, Evaluation] = {}
        accuracy, total = None, 0.0
        if is_due(state.round, settings.eval_every, last):
            for name, model in shared_models.items():
                evaluations[name], seconds = self._test(model, pool)
                total += seconds
        if is_due(state.round, settings.test_clients, last):
            accuracy, seconds = self._test_on_clients(shared_models, model_name_for, pool)
            total += seconds
        return TestResult(evaluations, client_accuracy=accuracy, seconds=total)

    def _open(self, broadcast_size: int, slot_size: int) -> tuple[Mailbox, Pool]:
        """Return a pool whose shared memory has at least these sizes in bytes.

        Start a new pool if the current one has less memory.
        """
        if self._pool is not None:
            mailbox, _ = self._pool
            old_size, old_slot_size = mailbox.broadcast.size, mailbox.slots[0].size
            if old_size >= broadcast_size and old_slot_size >= slot_size:
                return self._pool
            broadcast_size, slot_size = max(broadcast_size, old_size), max(slot_size, old_slot_size)
        self.close()
        mp_context, num_slots = get_mp_context(), self._num_participants
        mailbox = Mailbox.allocate(broadcast_size, slot_size, num_slots, mp_context)
        workers = choose_workers(self._settings.workers, self._context.device, num_slots)
        self._pool = (
            mailbox,
            create_pool(self._context, mailbox, workers, mp_context, self._callbacks.say),
        )
        return self._pool

    def _make_requests(
        self, plan: RoundPlan, messages: Sequence[SharedMessage]
    ) -> list[TrainRequest]:
        """Return one request per participant, in the order of the plan."""
        indices = [self._index_by_id[client] for client in plan.messages]
        name = f"client-{{}}-round-{plan.number}.safetensors"
        return [
            TrainRequest(
                round=plan.number,
                client_index=index,
                slot=slot,
                received=message,
                num_participants=len(indices),
                state_file=plan.state.client_files.get(index),
                state_path=self._client_folder / name.format(index),
            )
            for slot, (index, message) in enumerate(zip(indices, messages, strict=True))
        ]

    def _train(self, requests: Sequence[TrainRequest], pool: Pool) -> list[TrainReply]:
        """Train clients, those with the most steps first; return replies in the original order."""
        sizes = [self._sizes[request.client_index] for request in requests]
        order = sorted(range(len(requests)), key=lambda i: -self._steps[requests[i].client_index])
        stacks = split_into_stacks(sizes) if self._context.allow_stacks else [[i] for i in order]
        results = pool.run(
            Worker.train,
            [[requests[i] for i in stack] for stack in stacks],
            self._make_progress("training clients", len(requests), num_items=len(stacks)),
            self._describe_training,
        )
        replies: dict[int, TrainReply] = {}
        for stack, stack_replies in zip(stacks, results, strict=True):
            replies |= dict(zip(stack, stack_replies, strict=True))
        return [replies[i] for i in range(len(requests))]

    def _test(self, model: SharedModel, pool: Pool) -> tuple[Evaluation, float]:
        """Test a model on the test set; return the evaluation and the seconds."""
        parts = split_evenly(len(self._context.federation.test))
        items = [(model, slice(*part)) for part in parts]
        activity = f"tested a global model after round {model.round}"
        progress = self._make_progress("testing", len(items))
        results = pool.run(Worker.test, items, progress, lambda _: activity)
        evaluation = reduce(add, (evaluation for evaluation, _ in results))
        return evaluation, sum(seconds for _, seconds in results)

    def _test_on_clients(
        self,
        models: Mapping[str, SharedModel],
        model_name_for: Callable[[ClientId], str],
        pool: Pool,
    ) -> tuple[list[float | None], float]:
        """Test each client's model on its own data.

        Returns:
            The accuracy of each client, None for a client that is not tested; and the seconds.
        """
        indices_by_model: dict[str, list[int]] = {}
        for index in self._tested_indices:
            name = model_name_for(self._data_clients[index])
            indices_by_model.setdefault(name, []).append(index)
        items = [
            (models[name], group)
            for name, indices in indices_by_model.items()
            for group in group_clients(indices, self._test_sizes)
        ]
        progress = self._make_progress("testing on clients' data", len(items))
        results = pool.run(Worker.test_clients, items, progress, self._describe_client_test)
        client_accuracy: list[float | None] = [None] * len(self._data_clients)
        for (_, group), (accuracies, _) in zip(items, results, strict=True):
            for index, accuracy in zip(group, accuracies, strict=True):
                client_accuracy[index] = accuracy
        return client_accuracy, sum(seconds for _, seconds in results)

    def _describe_training(self, requests: Sequence[TrainRequest]) -> str:
        """Return the predicate of a sentence about the worker that trains clients."""
        names = _format_clients([self._ids[request.client_index] for request in requests])
        return f"trained {names} in round {requests[0].round}"

    def _describe_client_test(self, item: tuple[SharedModel, Sequence[int]]) -> str:
        """Return the predicate of a sentence about the worker that tests a model on clients."""
        model, indices = item
        names = _format_clients([self._data_clients[index] for index in indices])
        return f"tested a global model on the data of {names} after round {model.round}"

    def _make_progress(
        self, activity: str, total: int, num_items: int | None = None
    ) -> Callable[[int], None]:
        """Return a callback that reports progress, scaled from work items to ``total``."""
        num_items = num_items or total
        return lambda done: self._callbacks.progress(activity, done * total // num_items, total)


def _format_clients(clients: Sequence[ClientId]) -> str:
    """Return "client 3" or "clients 3, 4, 5"; if there are many, only the first and a number."""
    names = ", ".join(map(str, clients[:_MAX_CLIENTS_LISTED]))
    more = len(clients) - _MAX_CLIENTS_LISTED
    return f"client{'s' * (len(clients) > 1)} {names}{f' and {more} more' if more > 0 else ''}"


def _to_messages(models: Mapping[str, ModelState]) -> list[Message]:
    return [Message({name: model}) for name, model in models.items()]


def is_due(round_number: int, interval: int, last: int) -> bool:
    """Return whether a test is due after a round.

    Args:
        round_number: number of the round, from 1.
        interval: number of rounds between two tests; 0 means that no test is ever due.
        last: number of the last round, after which a test is always due.
    """
    return interval > 0 and (round_number % interval == 0 or round_number == last)


def split_evenly(num_samples: int) -> list[tuple[int, int]]:
    """Split a test set into parts of almost equal size; return the start and end of each part."""
    parts = torch.arange(num_samples).tensor_split(-(-num_samples // _TEST_SIZE))
    return [(int(part[0]), int(part[-1]) + 1) for part in parts]


def sample_test_clients(
    num_clients: int, participation: float, settings: EngineSettings
) -> list[int]:
    """Return the indices of the clients on whose data models are tested, the same in every test.

    If there are many clients, a random sample is tested: at least 100 clients, and as many as can
    be tested in about a tenth of the training time between two tests. With the same seed, a smaller
    sample is a subset of every larger sample.

    Args:
        num_clients: number of clients.
        participation: share of the clients that take part in a round.
        settings: settings of the run.
    """
    rounds = min(settings.test_clients, settings.rounds)
    passes = rounds * participation * num_clients * settings.local.epochs  # over a client's data
    size = max(_MIN_TEST_CLIENTS, int(_TEST_COST * _TRAIN_COST * passes))
    if size >= num_clients:
        return list(range(num_clients))
    order = torch.randperm(num_clients, generator=derive_generator(settings.seed, "test clients"))
    return sorted(order[:size].tolist())


def group_clients(indices: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Group clients, in their order, so that each group has enough samples for a work item.

    Args:
        indices: indices of the clients to test.
        sizes: number of test samples of every client of the federation.
    """
    groups: list[list[int]] = []
    num_samples = _TEST_SIZE
    for index in indices:
        if num_samples >= _TEST_SIZE:
            groups.append([])
            num_samples = 0
        groups[-1].append(index)
        num_samples += sizes[index]
    return [tuple(group) for group in groups]
