"""Any of our methods as a Flower strategy."""

import secrets
from collections.abc import Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from cadis.algorithm import (
    Algorithm,
    BaseMethod,
    check_names,
    given_algorithm,
    names_of,
    options_of,
    validated,
)
from cadis.algorithm.local_optimizers import LocalOptimizer
from cadis.algorithm.samplers import BaseSampler
from cadis.algorithm.server_optimizers import ServerOptimizer
from cadis.algorithm.tasks import Task
from cadis.algorithm.transforms import Transform
from cadis.errors import CadisError, RunError
from cadis.flower.evaluation import EvaluateFunction, evaluations_in
from cadis.flower.messages import models_in, tensors_in
from cadis.flower.registry import LOGGER, ClientRegistry
from cadis.flower.strategy_settings import StrategySettings
from cadis.flower.transport import FlowerTransport
from cadis.models import Layout, WrongTensorsError
from cadis.server import Member, RoundOutcome, RoundPlan, RoundRecord, RunState, Server, together
from cadis.store import RunFolder, RunWriter
from cadis.training import Evaluation


class MethodStrategy(Strategy):
    """Runs any of our methods on Flower: own seeded sampling, own aggregation, exact resume.

    A client app that sends its ``state_dict`` and ``num-examples`` works as it is; with
    :func:`cadis.flower.local_train` in it, the method's client half is run, too.

    Attributes:
        algorithm: how the federation learns.
        settings: all the rest.
    """

    def __init__(
        self,
        method: BaseMethod | str,
        *,
        sampler: BaseSampler | str = "auto",
        server_optimizer: ServerOptimizer | str = "auto",
        transforms: Sequence[Transform | str] = (),
        task: Task | str = "classification",
        local_optimizer: LocalOptimizer | str = "sgd",
        **settings: Any,
    ) -> None:
        """Take a method and the other parts of an algorithm, as they are or by name.

        Args:
            method: what clients add to their loss, and how their models are aggregated.
            sampler: who takes part in a round; "auto" is what the method goes with.
            server_optimizer: from the aggregated model to the next global one; likewise.
            transforms: what is done to updates, in this order.
            task: loss, prediction and measures.
            local_optimizer: how clients step.
            settings: what :class:`StrategySettings` has.
        """
        self.algorithm = given_algorithm(
            method=method,
            sampler=sampler,
            server_optimizer=server_optimizer,
            transforms=transforms,
            task=task,
            local_optimizer=local_optimizer,
        )
        if self.algorithm.method.pools_clients:
            raise CadisError(
                f"{self.algorithm.method.name} needs everybody's data in one place; run it by "
                "cadis.run."
            )
        if self.algorithm.method.needs_clock:
            raise CadisError(
                f"{self.algorithm.method.name} needs a simulated clock, which there is not where "
                "clients are real; run it by cadis.run."
            )
        check_names("option", settings, names_of(StrategySettings))
        self.settings = validated(StrategySettings, settings)
        self._run: _Run | None = None

    def summary(self) -> None:
        """Log what will be done."""
        LOGGER.info("\t├──> Method: %s", self.algorithm.method)
        out = self.settings.out
        LOGGER.info("\t└──> Kept in: %s", "memory only" if out is None else out.resolve())

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients, and tell each what to do and as whom."""
        run = self._begin(arrays, grid)
        run.transport.train_config = config
        run.plan = run.server.plan(server_round, run.with_models(arrays), run.transport)
        return run.transport.messages(run.plan)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the new global model; None if there are too few good updates."""
        run = self._run
        if run is None or run.plan is None:
            raise CadisError("Nobody was asked: call configure_train before aggregate_train.")
        if run.plan.number != server_round:
            raise CadisError(f"Nobody was asked in round {server_round}.")
        updates, failed = run.transport.answers(run.plan, replies)
        outcome = run.server.conclude(run.plan, updates, failed, run.transport)
        if outcome.state is None:
            return None, None
        run.state = outcome.state
        metrics = run.transport.train_metrics(update.client_id for update in outcome.updates)
        return run.arrays(), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients that test the global model."""
        run = self._begin(arrays, grid)
        state = replace(run.with_models(arrays), round=server_round)
        model_name_for = partial(run.server.model_name_for, state.server)
        return run.transport.ask_to_test(state, model_name_for, config)

    def aggregate_evaluate(
        self,
        server_round: int,  # noqa: ARG002
        replies: Iterable[Message],
    ) -> MetricRecord | None:
        """Return the mean of the clients' tests, of those that sent any."""
        return None if self._run is None else self._run.transport.take_tests(replies)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFunction | None = None,
    ) -> Result:
        """Run the rounds, as Flower's strategies do, and keep each as it ends.

        Args:
            grid: Flower's connection to the nodes.
            initial_arrays: the initial global model; a resumed run goes on with its own.
            num_rounds: how many rounds, those before a resume included.
            timeout: seconds to wait for the answers of a round.
            train_config: what clients are to know when they train, e.g. ``lr``.
            evaluate_config: what they are to know when they test.
            evaluate_fn: tests the global model on the server after every round.

        Returns:
            The last global model, and the metrics of the rounds that were run.
        """
        self.summary()
        self._run = run = _Run(self.algorithm, self.settings, initial_arrays, grid)
        transport, result = run.transport, Result()
        transport.timeout, transport.result = timeout, result
        transport.train_config = train_config or {}
        transport.evaluate_config = evaluate_config or {}
        transport.evaluate_fn = evaluate_fn
        writer = self._open_writer(run)
        with nullcontext() if writer is None else closing(writer):
            if writer is not None:
                run.state = _begin_writing(writer, run, self.settings, num_rounds)
            transport.registry = ClientRegistry.of(run.state.members)
            if not run.state.round:
                transport.test_on_server(run.state)
            evaluation = self._run_rounds(run, num_rounds, writer)
            if writer is not None and writer.history:
                writer.finish(run.state, evaluation)
        result.arrays = run.arrays()
        return result

    def _run_rounds(self, run: "_Run", last: int, writer: RunWriter | None) -> Evaluation | None:
        """Run the rounds that are left, keep each as it ends, and return the last test by class."""
        evaluation, trained = None, run.transport.result.train_metrics_clientapp
        try:
            for done in run.server.rounds(run.state, run.transport, last):
                run.state, evaluation = done.state, done.evaluation
                metrics = run.transport.train_metrics(done.record.participants)
                if metrics is not None:
                    trained[run.state.round] = metrics
                if writer is not None:
                    writer.keep(done.record, run.state)
                _log_round(done.record, last)
        except RunError as error:
            kept = f" The rounds before are kept in {self.settings.out}; resume it from there."
            raise RunError(f"{error}{kept if self.settings.out else ''}") from error
        if run.state.round and run.state.round not in trained:  # resumed, with no round left
            tests = evaluations_in(run.transport.test_on_server(run.state))
            evaluation = together(tests, run.server.users(run.state, run.transport.everyone()))
        return evaluation

    def _open_writer(self, run: "_Run") -> RunWriter | None:
        """Return what keeps the run, if there is a folder for it."""
        settings = self.settings
        if settings.out is not None:
            folder, layout = RunFolder(settings.out), run.transport.layout
            return RunWriter(folder, self.algorithm, layout, settings.inputs)
        if settings.resume:
            raise CadisError("Give the folder of the run to resume as out.")
        return None

    def _begin(self, arrays: ArrayRecord, grid: Grid) -> "_Run":
        """Return the run that is under way in someone else's loop, or begin one."""
        if self._run is None:
            self._run = _Run(self.algorithm, self.settings, arrays, grid)
        self._run.transport.grid = grid
        return self._run


class _Run:
    """What is known from round to round, also if a loop of Flower's runs them.

    Attributes:
        server: the round itself.
        transport: the way to the clients.
        state: what the next round depends on.
        plan: the round that is under way in Flower's loop.
    """

    def __init__(
        self, algorithm: Algorithm, settings: StrategySettings, arrays: ArrayRecord, grid: Grid
    ) -> None:
        try:
            tensors = tensors_in(arrays)
        except WrongTensorsError as error:
            raise CadisError(f"The initial arrays cannot be used: {error}.") from None
        layout = Layout.of_tensors(tensors, settings.head)
        algorithm.check_head(layout.head is not None)
        self.server = Server(
            algorithm,
            layout.head_slices,
            settings.seed,
            num_outputs=layout.num_outputs,
            count_limit=settings.count_limit,
            min_updates=settings.min_replies,
            attempts=settings.attempts,
            on_outcome=_log_outcome,
        )
        self.transport = FlowerTransport(grid, algorithm, settings, layout)
        self.state = self.server.start(layout.pack(tensors), run=secrets.token_hex(8))
        self.plan: RoundPlan | None = None

    def arrays(self) -> ArrayRecord:
        """Return the global model, or all of them with their names before those of tensors."""
        return ArrayRecord(self.transport.layout.unpack_all(self.state.server.models))

    def with_models(self, arrays: ArrayRecord) -> RunState:
        """Return the state with the models that a loop holds, which it may have changed."""
        if not self.state.round:
            return self.state  # the loop holds the initial model, and the method what it made of it
        models = models_in(arrays, self.transport.layout, self.state.server.models)
        return replace(self.state, server=replace(self.state.server, models=models))


def _begin_writing(
    writer: RunWriter, run: _Run, settings: StrategySettings, rounds: int
) -> RunState:
    """Return what to go on from: the start, or where the run in the folder stopped."""
    config = run.transport.train_config.items()
    described = {
        "runner": "flower",
        "rounds": rounds,
        "seed": settings.seed,
        "per_round": settings.per_round,
        "fraction_train": settings.fraction_train,
        "num_clients": settings.num_clients,
    }
    scalars = {key.replace("-", "_"): value for key, value in config if not _holds_bytes(value)}
    options = options_of(writer.algorithm, {**scalars, **settings.notes, **described})
    told = settings.federation or _only_classes(writer.algorithm, run.transport.layout)
    known = {client["id"] for client in told["clients"]}

    def federation(members: Iterable[Member]) -> dict[str, Any]:
        """Return what the server was told, and who else was ever there."""
        others = [
            {"id": member.client, "cluster": None, "samples": None}
            for member in members
            if member.client not in known
        ]
        return {**told, "clients": [*told["clients"], *others]}

    return writer.begin(run.state, options, federation, settings.resume, LOGGER.warning)


def _only_classes(algorithm: Algorithm, layout: Layout) -> dict[str, Any]:
    """Return what is known of a federation by default: the number of classes of the model."""
    if layout.head is None:
        raise CadisError(
            "None of the model's arrays is that of a linear layer, which would tell how many "
            'classes there are; name them: federation={"classes": [...], "clients": []}.'
        )
    classes = algorithm.task.num_classes(layout.num_outputs)
    return {"classes": [str(number) for number in range(classes)], "clients": []}


def _holds_bytes(value: object) -> bool:
    """Return whether a file of options cannot hold the value."""
    parts = value if isinstance(value, list) else [value]
    return any(isinstance(part, bytes) for part in parts)


def _log_outcome(outcome: RoundOutcome) -> None:
    """Log who was left out of a round, and why."""
    for rejection in outcome.rejected:
        LOGGER.warning("Left out client %s: %s.", rejection.client, rejection.reason)
    for update in outcome.updates:
        if update.client_id in outcome.capped:
            LOGGER.warning(
                "Client %s says that it has %d samples, and counts as if it had %d: far more than "
                "the others are not believed.",
                update.client_id,
                outcome.capped[update.client_id],
                update.num_examples,
            )
        if update.scalars.get("memory-lost"):
            LOGGER.warning("Client %s has lost its memory and begins anew.", update.client_id)
    if outcome.state is None:
        LOGGER.warning("The round has too few good updates.")


def _log_round(record: RoundRecord, rounds: int) -> None:
    """Log a round in one line."""
    clusters = record.report.get("clusters")
    found = f", clusters: {len(set(clusters))}" if isinstance(clusters, list) else ""
    quality = "" if record.accuracy is None else f", accuracy: {record.accuracy:.3f}"
    LOGGER.info(
        "[ROUND %d/%d] updates: %d%s%s", record.round, rounds, len(record.weights), found, quality
    )
