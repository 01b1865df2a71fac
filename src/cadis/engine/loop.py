"""The round loop: sample, train, aggregate, test."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from copy import deepcopy
from functools import reduce
from operator import add
from pathlib import Path

import torch
from torch import Tensor, nn

from cadis.core import CadisError, ModelState, generator_for
from cadis.engine.errors import EngineError
from cadis.engine.federation import Federation
from cadis.engine.pool import Pool, open_pool
from cadis.engine.record import EngineState, Rejection, RoundRecord, RoundResult, Seconds, as_list
from cadis.engine.settings import EngineSettings, choose_device, choose_workers
from cadis.engine.sharing import overwrite, process_context, shared_copy
from cadis.engine.worker import Job, Tested, TestTask, Trained, TrainTask
from cadis.methods import Aggregation, ClientUpdate, Method, ServerRound
from cadis.models import FlatModel
from cadis.training import Evaluation, evaluate

_TEST_PART = 256
"""Examples of the test set that are tested as one task, at the most."""


def sample_participants(seed: int, number: int, num_clients: int, per_round: int) -> list[int]:
    """Who takes part in a round: k of n without replacement, from (seed, round), in order."""
    generator = generator_for(seed, "participants", number)
    return sorted(torch.randperm(num_clients, generator=generator)[:per_round].tolist())


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
            head: name of the model's classifier layer; by default its last linear layer.
        """
        self._module, self._head = deepcopy(module), head
        model = FlatModel(deepcopy(module), head)
        federation.check(model.num_classes)
        self.given, self.method, self.num_classes = federation, method, model.num_classes
        self.start = EngineState(0, model.state(), {}, {})
        self._federation = federation.pooled() if method.pools_clients else federation
        self._layout = model.layout
        self._settings, self._client_folder = settings, client_folder
        self._device = choose_device(settings.device)
        self._per_round = self._check_per_round()
        self._sizes = self._federation.sizes()

    def rounds(self, state: EngineState) -> Iterator[RoundResult]:
        """Run the rounds that follow ``state``, up to the number in the settings."""
        context = process_context()
        sent = shared_copy(state.model, context)
        slots = tuple(shared_copy(state.model, context) for _ in range(self._per_round))
        job = Job(
            module=deepcopy(self._module),
            head=self._head,
            method=self.method,
            federation=self._federation,
            settings=self._settings,
            device=self._device,
            sent=sent,
            slots=slots,
        )
        workers = choose_workers(self._settings.workers, self._device, self._per_round)
        with _one_thread(), closing(open_pool(job, workers, context)) as pool:
            for number in range(state.round + 1, self._settings.rounds + 1):
                result = self._round(number, state, job, pool)
                yield result
                state = result.state

    def model_of(self, state: ModelState) -> nn.Module:
        """A model with these numbers."""
        model = FlatModel(deepcopy(self._module), self._head)
        model.load(state)
        return model.module

    def test(self, state: ModelState) -> Evaluation:
        """Test a model on the whole test set, in this process."""
        model = FlatModel(deepcopy(self._module), self._head)
        model.load(state)
        with _one_thread():
            return evaluate(model, self._federation.test)

    def _round(self, number: int, state: EngineState, job: Job, pool: Pool) -> RoundResult:
        started = time.perf_counter()
        present = sample_participants(
            self._settings.seed, number, len(self._sizes), self._per_round
        )
        trained = self._train(number, present, state, pool)
        good = [slot for slot, answer in enumerate(trained) if answer.finite]
        if not good:
            raise EngineError(
                f"Round {number}: every client's model became infinite or not a number; "
                "try a smaller learning rate."
            )
        aggregating = time.perf_counter()
        updates = [self._update(present[slot], trained[slot], job.slots[slot]) for slot in good]
        aggregation = self._aggregate(number, state, updates)
        aggregated = time.perf_counter()
        overwrite(job.sent, aggregation.state)
        tested = self._test(pool)
        evaluation = reduce(add, (part.evaluation for part in tested))
        seconds = Seconds(
            train=sum(answer.seconds for answer in trained),
            aggregate=aggregated - aggregating,
            evaluate=sum(part.seconds for part in tested),
            total=time.perf_counter() - started,
        )
        rejected = [
            Rejection(self._federation.client_ids[client], "its model is infinite or not a number")
            for slot, client in enumerate(present)
            if slot not in good
        ]
        files = {
            client: self._state_file(number, client).name
            for client, answer in zip(present, trained, strict=True)
            if answer.keeps_state
        }
        return RoundResult(
            _record(number, updates, aggregation, evaluation, rejected, seconds),
            evaluation,
            EngineState(
                number, aggregation.state, aggregation.method_state, {**state.client_files, **files}
            ),
        )

    def _train(
        self, number: int, present: list[int], state: EngineState, pool: Pool
    ) -> list[Trained]:
        """Train the participants, longest first; answers are in their own order."""
        tasks = [
            TrainTask(
                round=number,
                client=client,
                slot=slot,
                state_before=self._client_folder / state.client_files[client]
                if client in state.client_files
                else None,
                state_after=self._state_file(number, client),
            )
            for slot, client in enumerate(present)
        ]
        tasks.sort(key=lambda task: -self._sizes[task.client])
        answers = dict(zip((task.slot for task in tasks), pool.run(tasks), strict=True))
        return [answer for _, answer in sorted(answers.items()) if isinstance(answer, Trained)]

    def _test(self, pool: Pool) -> list[Tested]:
        """Test the global model in equal parts, whatever the number of workers."""
        size = len(self._federation.test)
        parts = torch.arange(size).tensor_split(-(-size // _TEST_PART))
        tasks = [TestTask(int(part[0]), int(part[-1]) + 1) for part in parts]
        return [answer for answer in pool.run(tasks) if isinstance(answer, Tested)]

    def _update(self, client: int, answer: Trained, slot: ModelState) -> ClientUpdate:
        client_id = self._federation.client_ids[client]
        return ClientUpdate(client_id, self._sizes[client], slot, answer.metrics)

    def _aggregate(
        self, number: int, state: EngineState, updates: Sequence[ClientUpdate]
    ) -> Aggregation:
        server_round = ServerRound(
            number=number,
            sent=state.model,
            head=self._layout.head,
            num_clients=len(self._sizes),
            generator=generator_for(self._settings.seed, "aggregate", number),
        )
        aggregation = self.method.aggregate(server_round, updates, state.method_state)
        if not aggregation.state.is_finite():
            raise EngineError(
                f"Round {number}: the global model became infinite or not a number; "
                "try a smaller learning rate."
            )
        return aggregation

    def _state_file(self, number: int, client: int) -> Path:
        return self._client_folder / f"client-{client}-round-{number}.safetensors"

    def _check_per_round(self) -> int:
        """K, the participants of a round."""
        number, asked = len(self._federation.clients), self._settings.per_round
        if self.method.pools_clients or asked is None:
            return number
        if asked > number:
            raise CadisError(
                f"{asked} clients cannot take part in a round of a federation of {number}; "
                f"ask for at most {number}."
            )
        return asked


def _record(
    number: int,
    updates: Sequence[ClientUpdate],
    aggregation: Aggregation,
    evaluation: Evaluation,
    rejected: list[Rejection],
    seconds: Seconds,
) -> RoundRecord:
    return RoundRecord(
        round=number,
        accuracy=evaluation.accuracy,
        loss=evaluation.loss,
        class_accuracy=as_list(evaluation.class_accuracy),
        participants=[update.client_id for update in updates],
        clusters=None if aggregation.clusters is None else aggregation.clusters.tolist(),
        weights=aggregation.weights.tolist(),
        similarity=None if aggregation.similarity is None else _rounded(aggregation.similarity),
        threshold=aggregation.threshold,
        rejected=rejected,
        seconds=seconds,
    )


def _rounded(matrix: Tensor) -> list[list[float]]:
    """Rows of numbers with as many digits as are worth keeping."""
    return [[round(value, 6) for value in row] for row in matrix.tolist()]


@contextmanager
def _one_thread() -> Iterator[None]:
    """One torch thread: small models train faster so, and results do not depend on the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
