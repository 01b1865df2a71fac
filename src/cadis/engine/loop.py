"""The round loop: sample, train, aggregate, test."""

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from copy import deepcopy
from functools import reduce
from operator import add
from pathlib import Path

from torch import nn

from cadis.core import CadisError, ModelState, one_thread, sample_participants
from cadis.data import NO_CALLBACKS, Callbacks
from cadis.engine.federation import Federation
from cadis.engine.pool import Pool, open_pool
from cadis.engine.server import Server
from cadis.engine.settings import EngineSettings, choose_workers
from cadis.engine.sharing import overwrite, process_context, shared_copy
from cadis.engine.worker import ClientTestTask, Job, Tested, TestTask, Trained, TrainTask
from cadis.methods import Method
from cadis.models import FlatModel
from cadis.runs import RoundResult, RunState, Seconds, record_of
from cadis.training import Evaluation, batch_sizes, check_fit, choose_device, evaluate, found_head


class Engine:
    """Runs a federation on this machine, round by round.

    Attributes:
        given: the federation as it was given.
        method: how it learns.
        num_classes: what the model tells apart.
        start: the state before the first round.
    """

    def __init__(
        self,
        module: nn.Module,
        federation: Federation,
        method: Method,
        settings: EngineSettings,
        client_folder: Path,
        head: str | None = None,
    ) -> None:
        """Check that all fits together; nothing is trained yet.

        Args:
            module: the initial global model, which is copied.
            federation: who takes part.
            method: how to learn.
            settings: how to run.
            client_folder: where the clients' memories are kept, for methods that have any.
            head: name of the model's classifier layer; by default the one that is found.
        """
        self._module, self._settings = deepcopy(module), settings
        self._head = head or found_head(module, federation.test)
        model = FlatModel(deepcopy(module), self._head)
        federation.check(model.num_classes)
        check_fit(model, federation.test)
        if not model.state().is_finite():
            raise CadisError("The initial model has a number that is infinite or not a number.")
        self.given, self.method, self.num_classes = federation, method, model.num_classes
        self.start = RunState(0, model.state(), {}, {})
        pooled = federation.pooled() if method.pools_clients else federation
        self._server = Server(method, pooled, model.layout.head, settings.seed, client_folder)
        self._device = choose_device(settings.device)
        self._per_round = self._check_per_round()
        self._steps = [len(batch_sizes(n, settings.local.batch_size)) for n in pooled.sizes()]

    def rounds(
        self, state: RunState, callbacks: Callbacks = NO_CALLBACKS
    ) -> Generator[RoundResult, None, None]:
        """Run the rounds that follow ``state``, up to the number in the settings."""
        context = process_context()
        job = Job(
            module=deepcopy(self._module),
            head=self._head,
            method=self.method,
            federation=self._server.federation,
            owned=self.given.clients,
            settings=self._settings,
            device=self._device,
            sent=shared_copy(state.model, context),
            slots=tuple(shared_copy(state.model, context) for _ in range(self._per_round)),
        )
        workers = choose_workers(self._settings.workers, self._device, self._per_round)
        with one_thread(), closing(open_pool(job, workers, context)) as pool:
            for number in range(state.round + 1, self._settings.rounds + 1):
                result = self._round(number, state, job, pool, callbacks)
                yield result
                state = result.state

    def model_of(self, state: ModelState) -> nn.Module:
        """A model with these numbers."""
        return self._loaded(state).module

    def test(self, state: ModelState) -> Evaluation:
        """Test a model on the whole test set, in this process."""
        with one_thread():
            return evaluate(self._loaded(state), self.given.test)

    def _loaded(self, state: ModelState) -> FlatModel:
        model = FlatModel(deepcopy(self._module), self._head)
        model.load(state)
        return model

    def _round(
        self, number: int, state: RunState, job: Job, pool: Pool, callbacks: Callbacks
    ) -> RoundResult:
        started = time.perf_counter()
        num_clients = len(self._server.federation.clients)
        present = sample_participants(self._settings.seed, number, num_clients, self._per_round)
        tasks = self._server.train_tasks(number, present, state)
        trained = self._train(tasks, pool, callbacks)
        aggregating = time.perf_counter()
        outcome = self._server.aggregate(number, state, present, trained, job.slots)
        aggregated = time.perf_counter()
        new = outcome.aggregation
        overwrite(job.sent, new.state)
        tested = _test(self._server.test_tasks(), pool, callbacks, "testing")
        evaluation = reduce(add, (part.evaluation for part in tested))
        owners = _test(self._client_tests(number), pool, callbacks, "testing on clients' data")
        seconds = Seconds(
            train=sum(answer.seconds for answer in trained),
            aggregate=aggregated - aggregating,
            evaluate=sum(part.seconds for part in [*tested, *owners]),
            total=time.perf_counter() - started,
        )
        record = record_of(
            number,
            outcome.updates,
            new,
            evaluation,
            outcome.rejected,
            seconds,
            [part.evaluation.accuracy for part in owners] or None,
        )
        following = RunState(number, new.state, new.method_state, outcome.client_files)
        return RoundResult(record, evaluation, following)

    def _train(self, tasks: list[TrainTask], pool: Pool, callbacks: Callbacks) -> list[Trained]:
        """Train the participants, longest first; answers are in the order of the tasks."""
        longest_first = sorted(tasks, key=lambda task: -self._steps[task.client])
        trained = pool.run(
            longest_first, lambda done: callbacks.progress("training clients", done, len(tasks))
        )
        answers = dict(zip(longest_first, trained, strict=True))
        in_order = (answers[task] for task in tasks)
        return [answer for answer in in_order if isinstance(answer, Trained)]

    def _client_tests(self, number: int) -> list[ClientTestTask]:
        """A task for each client, in the rounds in which it is their turn."""
        every = self._settings.test_clients
        due = every and (number % every == 0 or number == self._settings.rounds)
        return [ClientTestTask(client) for client in range(len(self.given.clients))] if due else []

    def _check_per_round(self) -> int:
        """How many take part in a round, k."""
        number, asked = len(self._server.federation.clients), self._settings.per_round
        if self.method.pools_clients or asked is None:
            return number
        if asked > number:
            raise CadisError(
                f"{asked} clients cannot take part in a round of a federation of {number}; "
                f"ask for at most {number}."
            )
        return asked


def _test(
    tasks: Sequence[TestTask | ClientTestTask], pool: Pool, callbacks: Callbacks, what: str
) -> list[Tested]:
    """Test the global model; answers are in the order of the tasks."""
    answers = pool.run(tasks, lambda done: callbacks.progress(what, done, len(tasks)))
    return [answer for answer in answers if isinstance(answer, Tested)]
