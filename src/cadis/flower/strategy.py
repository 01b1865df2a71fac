"""Any of our methods as a Flower strategy."""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import Tensor

from cadis.algorithm import (
    Algorithm,
    Method,
    check_names,
    given_algorithm,
    names_of,
    options_of,
    validated,
)
from cadis.algorithm.local_optimizers import LocalOptimizer
from cadis.algorithm.samplers import Sampler
from cadis.algorithm.server_optimizers import ServerOptimizer
from cadis.algorithm.tasks import Task
from cadis.algorithm.transforms import Transform
from cadis.errors import CadisError, RunError
from cadis.flower.evaluation import EvaluateFunction, Testing, evaluations_in, tests_together
from cadis.flower.messages import arrays_of, models_in, tensors_in
from cadis.flower.registry import LOGGER, ClientRegistry
from cadis.flower.replies import mean_metrics
from cadis.flower.strategy_settings import StrategySettings
from cadis.flower.transport import FlowerTransport
from cadis.models import Layout, WrongTensorsError
from cadis.server import Member, RoundOutcome, RoundPlan, RoundRecord, RunState, Server, together
from cadis.store import RunFolder, RunWriter
from cadis.training import Evaluation
from cadis.types import ClientId


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
        method: Method | str,
        *,
        sampler: Sampler | str = "auto",
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
        self._steps: _Steps | None = None

    def summary(self) -> None:
        """Log what will be done."""
        LOGGER.info("\t├──> Method: %s", self.algorithm.method)
        out = self.settings.out
        LOGGER.info("\t└──> Kept in: %s", "memory only" if out is None else out.resolve())

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients, and tell each what to do and as whom."""
        return self._begun(arrays, grid).ask(server_round, arrays, config)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The new global model; None if there are too few good updates."""
        if self._steps is None or self._steps.plan is None:
            raise CadisError("Nobody was asked: call configure_train before aggregate_train.")
        if self._steps.plan.number != server_round:
            raise CadisError(f"Nobody was asked in round {server_round}.")
        return self._steps.take(replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients that test the global model."""
        return self._begun(arrays, grid).ask_to_test(server_round, arrays, config)

    def aggregate_evaluate(
        self,
        server_round: int,  # noqa: ARG002
        replies: Iterable[Message],
    ) -> MetricRecord | None:
        """The mean of the clients' tests, of those that sent any."""
        good = self._steps.transport.take_tests(replies) if self._steps is not None else []
        return tests_together(good, self.settings)

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
        self._steps = steps = _Steps(self.algorithm, self.settings, initial_arrays, grid)
        result = Result(arrays=initial_arrays)
        transport = steps.transport
        transport.timeout, transport.config = timeout, train_config or {}
        transport.testing = Testing(evaluate_fn, evaluate_config or {}, result)
        with _kept(self.algorithm, self.settings, steps.layout) as writer:
            state = _begun(writer, steps, self.settings, num_rounds, train_config or {})
            transport.registry = ClientRegistry.of(state.members)
            if not state.round:
                transport.testing.central(transport, state)
            state, evaluation = self._run(steps, state, num_rounds, writer, result)
            if writer is not None and writer.history:
                writer.finish(state, evaluation)
        result.arrays = arrays_of(steps.layout, state.server.models)
        return result

    def _run(
        self,
        steps: "_Steps",
        state: RunState,
        last: int,
        writer: RunWriter | None,
        result: Result,
    ) -> tuple[RunState, Evaluation | None]:
        """Run the rounds that follow a state, and keep each as it ends.

        Returns:
            The last state, and its test by class, if there was any.
        """
        evaluation = None
        try:
            for done in steps.server.rounds(state, steps.transport, last):
                state, evaluation = done.state, done.evaluation
                metrics = steps.train_metrics(done.record.participants)
                if metrics is not None:
                    result.train_metrics_clientapp[state.round] = metrics
                if writer is not None:
                    writer.keep(done.record, state)
                _tell_round(done.record, last)
        except RunError as error:
            kept = f" The rounds before are kept in {self.settings.out}; resume it from there."
            raise RunError(f"{error}{kept if self.settings.out else ''}") from error
        if state.round and state.round not in result.train_metrics_clientapp:
            evaluation = steps.tested(state)  # a resumed run may have no round left
        return state, evaluation

    def _begun(self, arrays: ArrayRecord, grid: Grid) -> "_Steps":
        """What is known from round to round, also if someone else's loop runs them."""
        if self._steps is None:
            self._steps = _Steps(self.algorithm, self.settings, arrays, grid)
        self._steps.transport.grid = grid
        return self._steps


class _Steps:
    """A round in steps, for loops of Flower's; the same server and transport run whole rounds.

    Attributes:
        layout: names and shapes of the model's arrays.
        server: the round itself.
        transport: the way to the clients.
        state: what the next round depends on.
        plan: the round that is under way.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        settings: StrategySettings,
        arrays: ArrayRecord,
        grid: Grid,
    ) -> None:
        tensors = _initial(arrays)
        self.layout = layout = Layout.of_tensors(tensors, settings.head)
        algorithm.check_head(layout.head is not None)
        self.server = Server(
            algorithm,
            layout.head_slices,
            settings.seed,
            num_outputs=layout.num_outputs,
            count_limit=settings.count_limit,
            min_updates=settings.min_replies,
            attempts=settings.attempts,
            on_outcome=_tell_outcome,
        )
        self.state = self.server.start(layout.pack(tensors), run=secrets.token_hex(8))
        self.transport = FlowerTransport(grid, algorithm, settings, layout, ClientRegistry())
        self.plan: RoundPlan | None = None
        self._settings = settings

    def ask(self, number: int, arrays: ArrayRecord, config: Mapping[str, Any]) -> list[Message]:
        """The messages of a round that begins with these arrays."""
        self.transport.config = config
        self.plan = self.server.plan(number, self._with(arrays), self.transport)
        return self.transport.messages(self.plan)

    def take(self, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The new global model and the mean of what clients told; None if there are too few."""
        assert self.plan is not None
        updates, failed = self.transport.answers(self.plan, replies)
        outcome = self.server.conclude(self.plan, updates, failed, self.transport)
        if outcome.state is None:
            return None, None
        self.state = outcome.state
        metrics = self.train_metrics([update.client_id for update in outcome.updates])
        return arrays_of(self.layout, self.state.server.models), metrics

    def ask_to_test(
        self, number: int, arrays: ArrayRecord, config: Mapping[str, Any]
    ) -> list[Message]:
        """The messages to clients that are to test."""
        state = replace(self._with(arrays), round=number)
        model_of = partial(self.server.model_name_for, state.server)
        return self.transport.ask_to_test(state, model_of, config)

    def train_metrics(self, clients: Iterable[ClientId]) -> MetricRecord | None:
        """One record of what these clients told of their training."""
        replies = [self.transport.replies[client] for client in clients]
        given, key = self._settings.train_metrics_aggr_fn, self._settings.weighted_by_key
        if given is not None and replies:
            return given(replies, key)
        return mean_metrics(replies, key, self._settings.count_limit)

    def tested(self, state: RunState) -> Evaluation | None:
        """The test of the global models on the server, by class."""
        central = self.transport.testing.central(self.transport, state)
        users = self.server.users(state, self.transport.everyone())
        return together(evaluations_in(central), users)

    def _with(self, arrays: ArrayRecord) -> RunState:
        """The state with the models that the loop holds, which may have been changed there."""
        if not self.state.round:
            return self.state  # the loop holds the initial model, and the method what it made of it
        models = models_in(arrays, self.layout, self.state.server.models)
        return replace(self.state, server=replace(self.state.server, models=models))


def _initial(arrays: ArrayRecord) -> dict[str, Tensor]:
    try:
        return tensors_in(arrays)
    except WrongTensorsError as error:
        raise CadisError(f"The initial arrays cannot be used: {error}.") from None


@contextmanager
def _kept(
    algorithm: Algorithm, settings: StrategySettings, layout: Layout
) -> Iterator[RunWriter | None]:
    """What keeps the run, if there is a folder for it."""
    if settings.out is None:
        if settings.resume:
            raise CadisError("Give the folder of the run to resume as out.")
        yield None
        return
    with closing(RunWriter(RunFolder(settings.out), algorithm, layout, settings.inputs)) as writer:
        yield writer


def _begun(
    writer: RunWriter | None,
    steps: _Steps,
    settings: StrategySettings,
    rounds: int,
    config: Mapping[str, Any],
) -> RunState:
    """What to go on from: the start, or where the run in the folder stopped."""
    if writer is None:
        return steps.state
    scalars = {k.replace("-", "_"): v for k, v in config.items() if not _holds_bytes(v)}
    described = {
        "runner": "flower",
        "rounds": rounds,
        "seed": settings.seed,
        "per_round": settings.per_round,
        "fraction_train": settings.fraction_train,
        "num_clients": settings.num_clients,
    }
    options = options_of(writer.algorithm, {**scalars, **settings.notes, **described})
    told = settings.federation or _only_classes(writer.algorithm, steps.layout)

    def federation(members: Iterable[Member]) -> dict[str, Any]:
        return _who_has_what(told, members)

    return writer.begin(steps.state, options, federation, settings.resume, LOGGER.warning)


def _only_classes(algorithm: Algorithm, layout: Layout) -> dict[str, Any]:
    """What is known of a federation if nobody tells: as many classes as the model tells apart."""
    if layout.head is None:
        raise CadisError(
            "None of the model's arrays is that of a linear layer, which would tell how many "
            'classes there are; name them: federation={"classes": [...], "clients": []}.'
        )
    classes = algorithm.task.num_classes(layout.num_outputs)
    return {"classes": [str(number) for number in range(classes)], "clients": []}


def _who_has_what(told: Mapping[str, Any], members: Iterable[Member]) -> dict[str, Any]:
    """What ``federation.json`` holds: what the server was told, and who else was ever there."""
    known = {client["id"] for client in told["clients"]}
    others = [
        {"id": member.client, "cluster": None, "samples": None}
        for member in members
        if member.client not in known
    ]
    return {**told, "clients": [*told["clients"], *others]}


def _holds_bytes(value: object) -> bool:
    """Whether this is nothing that a file of options can hold."""
    return isinstance(value, bytes) or (
        isinstance(value, list) and any(isinstance(part, bytes) for part in value)
    )


def _tell_outcome(outcome: RoundOutcome) -> None:
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


def _tell_round(record: RoundRecord, rounds: int) -> None:
    """Log a round in one line."""
    clusters = record.report.get("clusters")
    found = f", clusters: {len(set(clusters))}" if isinstance(clusters, list) else ""
    quality = "" if record.accuracy is None else f", accuracy: {record.accuracy:.3f}"
    LOGGER.info(
        "[ROUND %d/%d] updates: %d%s%s", record.round, rounds, len(record.weights), found, quality
    )
