"""A Flower strategy that runs any method of cadis."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
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
    compose_algorithm,
    get_field_names,
    to_options,
    validate,
)
from cadis.algorithm.local_optimizers import LocalOptimizer
from cadis.algorithm.samplers import BaseSampler
from cadis.algorithm.server_optimizers import ServerOptimizer
from cadis.algorithm.tasks import Task
from cadis.algorithm.transforms import Transform
from cadis.errors import CadisError, RunError
from cadis.flower.evaluation import EvaluateFunction, read_evaluations
from cadis.flower.messages import STATE_LOST_KEY, to_models, to_tensors
from cadis.flower.registry import LOGGER, ClientRegistry
from cadis.flower.strategy_settings import StrategySettings
from cadis.flower.transport import FlowerTransport
from cadis.models import Layout, WrongTensorsError
from cadis.server import (
    Member,
    RoundOutcome,
    RoundPlan,
    RoundRecord,
    RunState,
    Server,
    UpdateSummary,
    combine_evaluations,
    return_to_fallback,
)
from cadis.store import RunFolder, RunWriter
from cadis.training import Evaluation
from cadis.types import ClientId, ModelState


class MethodStrategy(Strategy):
    """Flower strategy that runs any method of cadis, with seeded sampling and exact resume.

    A ClientApp that sends its ``state_dict`` and ``num-examples`` needs no change. Call
    :func:`cadis.flower.local_train` in it to run the client side of the method too.

    Attributes:
        algorithm: the method and the other parts.
        settings: all other settings.

    Example:
        >>> strategy = MethodStrategy("cadis", fraction_train=0.5, server_optimizer="adam", seed=1)
        >>> strategy.settings.fraction_train
        0.5
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
        """Create a strategy from a method and the other parts, each an object or a name.

        Args:
            method: defines the local loss of clients and the aggregation of their models.
            sampler: chooses the participants of a round; "auto" for the default of the method.
            server_optimizer: computes the next global model from the aggregated one; "auto" for
                the default of the method.
            transforms: transforms of updates, applied in this order.
            task: defines loss, prediction and metrics.
            local_optimizer: optimizer of local training.
            settings: fields of :class:`StrategySettings`.
        """
        self.algorithm = compose_algorithm(
            method=method,
            sampler=sampler,
            server_optimizer=server_optimizer,
            transforms=transforms,
            task=task,
            local_optimizer=local_optimizer,
        )
        if self.algorithm.method.pools_clients:
            raise CadisError(
                f"{self.algorithm.method.name} needs the data of all clients in one process; use "
                "cadis.run."
            )
        if self.algorithm.method.needs_clock:
            raise CadisError(
                f"{self.algorithm.method.name} needs a simulated clock, which Flower lacks; use "
                "cadis.run."
            )
        check_names("option", settings, get_field_names(StrategySettings))
        self.settings = validate(StrategySettings, settings)
        self._run: _Run | None = None

    def summary(self) -> None:
        """Log the settings of the strategy."""
        LOGGER.info("\t├──> Method: %s", self.algorithm.method)
        out = self.settings.out
        LOGGER.info("\t└──> Output folder: %s", "none" if out is None else out.resolve())

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose the participants, and return the message to each."""
        run = self._get_run(arrays, grid)
        run.transport.train_config = config
        run.plan = run.server.plan(server_round, run.update_models(arrays), run.transport)
        return run.transport.make_train_messages(run.plan)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the new global model and the metrics; None if too few updates are valid."""
        run = self._run
        if run is None or run.plan is None:
            raise CadisError("Call configure_train before aggregate_train.")
        if run.plan.number != server_round:
            raise CadisError(f"Call configure_train for round {server_round} first.")
        updates, failed = run.transport.read_train_replies(run.plan, replies)
        outcome = run.server.aggregate_updates(run.plan, updates, failed, run.transport)
        if outcome.has_diverged and run.state.fallback is not None:
            run.state, _ = return_to_fallback(run.state)
            return run.to_arrays(run.state.server.models), None
        if outcome.state is None:
            return None, None
        run.state = outcome.state
        clients = [update.client_id for update in outcome.updates]
        metrics = run.transport.aggregate_train_metrics(clients)
        return run.to_arrays(run.state.server.models), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients that evaluate the global model, and return the message to each."""
        run = self._get_run(arrays, grid)
        state = replace(run.update_models(arrays), round=server_round)
        model_name_for = partial(run.server.model_name_for, state.server)
        return run.transport.make_evaluate_messages(state, model_name_for, config)

    def aggregate_evaluate(
        self,
        server_round: int,  # noqa: ARG002
        replies: Iterable[Message],
    ) -> MetricRecord | None:
        """Return the aggregated evaluation metrics of the clients that replied."""
        if self._run is None:
            return None
        return self._run.transport.aggregate_evaluate_replies(replies)

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
        """Run all rounds, like Flower's strategies, and save each round in the output folder.

        Args:
            grid: Flower's connection to the nodes.
            initial_arrays: the initial global model; a resumed run loads its own instead.
            num_rounds: number of rounds, including those before a resume.
            timeout: seconds to wait for the replies of a round.
            train_config: config entries for training on clients, such as ``lr``.
            evaluate_config: config entries for evaluation on clients.
            evaluate_fn: evaluates the global model on the server after each round, see
                :func:`cadis.flower.server_test`.

        Returns:
            The final global model, and the metrics of the rounds of this call.
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
                run.state = _start_writer(writer, run, self.settings, num_rounds)
            transport.registry = ClientRegistry.from_members(run.state.members)
            if not run.state.round:
                transport.evaluate_on_server(run.state)
            evaluation = self._run_rounds(run, num_rounds, writer)
            if writer is not None and writer.history:
                writer.finish(run.state, evaluation)
        result.arrays = run.to_arrays(run.state.global_models)
        return result

    def _run_rounds(self, run: "_Run", last: int, writer: RunWriter | None) -> Evaluation | None:
        """Run and save the remaining rounds, and return the last evaluation."""
        evaluation, train_metrics = None, run.transport.result.train_metrics_clientapp
        try:
            for result in run.server.rounds(run.state, run.transport, last):
                run.state, evaluation = result.state, result.evaluation
                metrics = run.transport.aggregate_train_metrics(result.record.participants)
                if metrics is not None:
                    train_metrics[run.state.round] = metrics
                if writer is not None:
                    writer.save_round(result.record, run.state)
                _log_round(result.record, last)
        except RunError as error:
            hint = f" The earlier rounds are saved in {self.settings.out}: set resume=True."
            raise RunError(f"{error}{hint if self.settings.out else ''}") from error
        if run.state.round and run.state.round not in train_metrics:
            # The resumed run was complete, so no round ran: evaluate its last state again.
            evaluations = read_evaluations(run.transport.evaluate_on_server(run.state))
            clients = run.transport.all_clients()
            evaluation = combine_evaluations(
                evaluations, run.server.list_client_models(run.state, clients)
            )
        return evaluation

    def _open_writer(self, run: "_Run") -> RunWriter | None:
        """Return the writer of the run folder, or None if there is no folder."""
        settings = self.settings
        if settings.out is not None:
            folder, layout = RunFolder(settings.out), run.transport.layout
            return RunWriter(folder, self.algorithm, layout, settings.inputs)
        if settings.resume:
            raise CadisError("Give the folder of the run to resume: out=FOLDER.")
        return None

    def _get_run(self, arrays: ArrayRecord, grid: Grid) -> "_Run":
        """Return the current run; create it if ``start`` has not.

        This is so if Flower's base method ``Strategy.start`` runs the rounds instead of the
        ``start`` of this class, as in Flower's wrappers for differential privacy.
        """
        if self._run is None:
            self._run = _Run(self.algorithm, self.settings, arrays, grid)
        self._run.transport.grid = grid
        return self._run


class _Run:
    """Server, transport and state of one run.

    Attributes:
        server: runs the rounds.
        transport: sends messages to the clients.
        state: the state that the next round starts from.
        plan: plan of the current round; used only if Flower's ``Strategy.start`` runs the rounds.
    """

    def __init__(
        self, algorithm: Algorithm, settings: StrategySettings, arrays: ArrayRecord, grid: Grid
    ) -> None:
        try:
            tensors = to_tensors(arrays)
        except WrongTensorsError as error:
            raise CadisError(f"The initial arrays cannot be used: {error}.") from None
        layout = Layout.from_tensors(tensors, settings.head)
        algorithm.check_head(layout.head is not None)
        self.server = Server(
            algorithm,
            layout.head_slices,
            settings.seed,
            num_outputs=layout.num_outputs,
            count_limit=settings.count_limit,
            buffers=layout.buffer_slices,
            min_updates=settings.min_replies,
            attempts=settings.attempts,
            on_outcome=_OutcomeLog(),
        )
        self.transport = FlowerTransport(grid, algorithm, settings, layout)
        self.state = self.server.start(layout.pack(tensors), run=secrets.token_hex(8))
        self.plan: RoundPlan | None = None

    def to_arrays(self, models: Mapping[str, ModelState]) -> ArrayRecord:
        """Return the arrays of a model; if there are several, their names begin with its name."""
        return ArrayRecord(self.transport.layout.unpack_models(models))

    def update_models(self, arrays: ArrayRecord) -> RunState:
        """Return the state with the models in ``arrays``.

        They differ from those in the state if a wrapper, such as Flower's differential privacy, has
        changed the result of ``aggregate_train``. Averages of models are dropped, because they do
        not contain these changes.
        """
        if not self.state.round:  # arrays has one initial model, but the method may have several
            return self.state
        models = to_models(arrays, self.transport.layout, self.state.server.models)
        server = replace(self.state.server, models=models)
        return replace(self.state, server=server, averages={})


def _start_writer(
    writer: RunWriter, run: _Run, settings: StrategySettings, rounds: int
) -> RunState:
    """Start writing, and return the initial state or the state of the run to resume."""
    config = run.transport.train_config.items()
    run_options = {
        "runner": "flower",
        "rounds": rounds,
        "seed": settings.seed,
        "per_round": settings.per_round,
        "fraction_train": settings.fraction_train,
        "num_clients": settings.num_clients,
        "profiles": settings.profiles,
    }
    scalars = {key.replace("-", "_"): value for key, value in config if not _holds_bytes(value)}
    options = to_options(writer.algorithm, {**scalars, **settings.notes, **run_options})
    federation = settings.federation or _describe_classes(writer.algorithm, run.transport.layout)
    known_ids = {client["id"] for client in federation["clients"]}

    def add_members(members: Iterable[Member]) -> dict[str, Any]:
        """Return the description of the federation with all clients that have connected."""
        others = [
            {"id": member.client, "cluster": None, "samples": None}
            for member in members
            if member.client not in known_ids
        ]
        return {**federation, "clients": [*federation["clients"], *others]}

    return writer.begin(run.state, options, add_members, settings.resume, LOGGER.warning)


def _describe_classes(algorithm: Algorithm, layout: Layout) -> dict[str, Any]:
    """Return the description of a federation with unknown clients and numbered classes."""
    if layout.head is None:
        raise CadisError(
            "The model has no linear layer, so the number of classes is unknown; name the classes: "
            'federation={"classes": [...], "clients": []}.'
        )
    classes = algorithm.task.num_classes(layout.num_outputs)
    return {"classes": [str(label) for label in range(classes)], "clients": []}


def _holds_bytes(value: object) -> bool:
    """Return whether a value contains bytes, which ``config.toml`` cannot store."""
    parts = value if isinstance(value, list) else [value]
    return any(isinstance(part, bytes) for part in parts)


class _OutcomeLog:
    """Logs rejected clients, limited numbers of samples and lost states."""

    def __init__(self) -> None:
        self._limited: set[ClientId] = set()

    def __call__(self, outcome: RoundOutcome) -> None:
        """Log an outcome; a client with too many samples is named once per run."""
        for rejection in outcome.rejected:
            LOGGER.warning(
                "Rejected the update of client %s: %s.", rejection.client, rejection.reason
            )
        for update in outcome.updates:
            self._log_update(update, outcome.excessive_counts.get(update.client_id))
        if outcome.state is None:
            LOGGER.warning("The round has too few valid updates.")

    def _log_update(self, update: UpdateSummary, reported: int | None) -> None:
        """Log what is unusual about an accepted update.

        Args:
            update: the update.
            reported: number of samples that the client reported, if it was too large.
        """
        if reported is not None and update.client_id not in self._limited:
            self._limited.add(update.client_id)
            LOGGER.warning(
                "Client %s reports %d samples, far more than the others; they are counted as %d. "
                "If your sites really differ so much, raise count_limit.",
                update.client_id,
                reported,
                update.num_samples,
            )
        if update.scalars.get(STATE_LOST_KEY):
            LOGGER.warning(
                "Client %s has lost its state and starts from an empty one.", update.client_id
            )


def _log_round(record: RoundRecord, rounds: int) -> None:
    """Log the result of a round in one line."""
    clusters = record.report.get("clusters")
    count = f", clusters: {len(set(clusters))}" if isinstance(clusters, list) else ""
    accuracy = "" if record.accuracy is None else f", accuracy: {record.accuracy:.3f}"
    LOGGER.info(
        "[ROUND %d/%d] updates: %d%s%s", record.round, rounds, len(record.weights), count, accuracy
    )
