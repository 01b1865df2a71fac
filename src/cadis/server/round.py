"""The rounds of a run: sample, broadcast, train, validate, aggregate, optimize, test, record.

The engine and the Flower strategy run :class:`Server`, each with its own
:class:`~cadis.server.transport.Transport` to the clients.
"""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from cadis.algorithm import Aggregation, Algorithm, EstimateSeconds, ServerRound, ServerState
from cadis.algorithm.samplers import SamplerFeedback, SamplerRound
from cadis.algorithm.transforms import apply_transforms
from cadis.errors import CadisError, RunError
from cadis.rng import derive_generator, derive_seed
from cadis.server.outcome import RoundOutcome, UpdateSummary, make_record
from cadis.server.records import Rejection, RoundResult, RunState, Seconds
from cadis.server.transport import AvailableClients, RoundPlan, Transport
from cadis.server.user_errors import (
    catch_part_errors,
    check_participants,
    check_tensors,
    validate_aggregation,
    validate_clock,
    validate_eligible,
    validate_message,
    validate_state,
)
from cadis.server.validation import (
    NOT_FINITE,
    DivergedError,
    find_defect,
    limit_counts,
    split_valid,
)
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState


@dataclass(frozen=True)
class Server:
    """The server of a federation.

    Attributes:
        algorithm: the method, sampler, server optimizer and other parts.
        head: slices of the classifier layer in the flat parameter vector.
        seed: seed of all random numbers.
        true_clusters: true cluster of each client, if known.
        num_outputs: number of rows of the classifier layer's weight matrix.
        count_limit: limit of the number of samples that a client may report, as a multiple of the
            round's median; None if the server counted the samples itself.
        min_updates: number of valid updates that a round needs.
        attempts: number of attempts to do a round before the run fails.
        on_outcome: called with the outcome of every attempt, also of a failed one.
        estimate_seconds: simulated time of each client; None if no time is simulated.
    """

    algorithm: Algorithm
    head: tuple[slice, ...]
    seed: int
    true_clusters: Mapping[ClientId, int] | None = None
    num_outputs: int = 0
    count_limit: float | None = None
    min_updates: int = 1
    attempts: int = 1
    on_outcome: Callable[[RoundOutcome], None] = lambda _: None
    estimate_seconds: EstimateSeconds | None = None

    def start(self, model: ModelState, run: str = "") -> RunState:
        """Return the state before the first round.

        Args:
            model: the initial global model.
            run: id of the run in a deployment.
        """
        method = self.algorithm.method
        with catch_part_errors(method, "init"):
            state = method.init(model, derive_generator(self.seed, "init"))
        return RunState(0, validate_state(state, method.name), run=run)

    def rounds(
        self, state: RunState, transport: Transport, last: int
    ) -> Generator[RoundResult, None, None]:
        """Run the rounds after ``state``, up to round ``last``; yield the result of each."""
        for number in range(state.round + 1, last + 1):
            result = self._round(number, state, transport)
            state = result.state  # before the yield, so that the old state is freed
            yield result

    def _round(self, number: int, state: RunState, transport: Transport) -> RoundResult:
        started = time.perf_counter()
        for attempt in range(self.attempts):
            outcome, train_seconds = self._attempt(number, state, transport, attempt)
            if outcome.state is not None and outcome.aggregation is not None:
                break
        else:
            raise self._make_too_few_error(number, outcome, state)
        model_name_for = partial(self.model_name_for, outcome.state.server)
        test_result = transport.test(outcome.state, model_name_for)
        seconds = Seconds(
            train=train_seconds,
            aggregate=outcome.seconds,
            evaluate=test_result.seconds,
            total=time.perf_counter() - started,
        )
        client_models = self.list_client_models(outcome.state, transport.all_clients())
        record, evaluation = make_record(
            number, outcome, test_result, seconds, client_models, self.algorithm.task
        )
        if self.estimate_seconds is not None:
            record = replace(record, clock=outcome.state.clock)
        return RoundResult(record, evaluation, outcome.state)

    def _attempt(
        self, number: int, state: RunState, transport: Transport, attempt: int
    ) -> tuple[RoundOutcome, float]:
        """Attempt the round; return the outcome and the training time in seconds.

        Messages and updates are freed when it returns.
        """
        plan, started = self.plan(number, state, transport, attempt), time.perf_counter()
        updates, failed = transport.train(plan)
        client_seconds = [update.seconds for update in updates if update.seconds is not None]
        is_known = len(client_seconds) == len(updates)
        seconds = sum(client_seconds) if is_known else time.perf_counter() - started
        return self.aggregate_updates(plan, updates, failed, transport), seconds

    def list_client_models(self, state: RunState, clients: Sequence[ClientId]) -> list[str]:
        """Return the name of the model that each client uses; empty if there is only one model."""
        if len(state.server.models) < 2:
            return []
        return [self.model_name_for(state.server, client) for client in clients]

    def model_name_for(self, state: ServerState, client: ClientId) -> str:
        """Return the name of the model that the method assigns to a client."""
        method = self.algorithm.method
        with catch_part_errors(method, "model_name_for"):
            name = method.model_name_for(client, state)
        if name not in state.models:
            raise CadisError(
                f"{method.name}.model_name_for returned '{name}'; it must return one of: "
                f"{', '.join(state.models)}."
            )
        return name

    def plan(
        self, number: int, state: RunState, transport: Transport, attempt: int = 0
    ) -> RoundPlan:
        """Choose the participants and the message for each.

        Args:
            number: number of the round, from 1.
            state: state before the round.
            transport: connection to the clients.
            attempt: number of failed attempts; each attempt draws other participants.
        """
        available = transport.available_clients()
        seed = derive_seed(self.seed, "again", attempt) if attempt else self.seed
        generator = derive_generator(seed, "participants", number)
        sampler, method = self.algorithm.sampler, self.algorithm.method
        server_round = self._server_round(number, available)
        eligible = self._eligible_clients(server_round, state.server)
        num_participants = min(available.num_participants, len(eligible))

        def cluster_labels(clients: Sequence[ClientId]) -> Tensor:
            with catch_part_errors(method, "cluster_labels"):
                return method.cluster_labels(server_round, state.server, clients)

        def client_profiles(clients: Sequence[ClientId]) -> Tensor:
            with catch_part_errors(method, "client_profiles"):
                return method.client_profiles(state.server, clients)

        sampler_round = SamplerRound(
            number, eligible, num_participants, generator, cluster_labels, client_profiles
        )
        with catch_part_errors(sampler, "choose"):
            participants = list(sampler.choose(sampler_round, state.sampler))
        check_participants(participants, eligible, num_participants, sampler.name)
        with catch_part_errors(method, "broadcast"):
            messages = {
                client: validate_message(
                    method.broadcast(server_round, state.server, client), method.name
                )
                for client in participants
            }
        return RoundPlan(number, state, available, messages)

    def _eligible_clients(
        self, server_round: ServerRound, state: ServerState
    ) -> Sequence[ClientId]:
        """Return the clients that the method lets take part."""
        method, available = self.algorithm.method, server_round.clients
        with catch_part_errors(method, "eligible_clients"):
            eligible = method.eligible_clients(server_round, state, available)
        return validate_eligible(eligible, available, method.name)

    def aggregate_updates(
        self,
        plan: RoundPlan,
        received: Sequence[ClientUpdate],
        failed: Sequence[Rejection],
        transport: Transport,
    ) -> RoundOutcome:
        """Validate the updates and aggregate them if there are at least ``min_updates``.

        Args:
            plan: plan of the round.
            received: updates of the participants.
            failed: participants that sent no update, and the reasons.
            transport: connection to the clients.
        """
        started = time.perf_counter()
        accepted, invalid = split_valid(received, self.algorithm.method, plan.state.server)
        updates, capped = self._prepare_updates(plan, accepted)
        summaries = [UpdateSummary.from_update(update) for update in updates]
        outcome = RoundOutcome(summaries, [*plan.available.refused, *failed, *invalid], capped)
        if len(updates) >= self.min_updates:
            aggregation = self._call_aggregate(plan, updates)
            state = transport.update_state(self._next_state(plan, updates, aggregation), accepted)
            seconds = time.perf_counter() - started
            outcome = replace(outcome, aggregation=aggregation, state=state, seconds=seconds)
        self.on_outcome(outcome)
        return outcome

    def _call_aggregate(self, plan: RoundPlan, updates: Sequence[ClientUpdate]) -> Aggregation:
        """Return the method's aggregation of the updates, validated."""
        method, state = self.algorithm.method, plan.state.server
        server_round = self._server_round(plan.number, plan.available)
        with catch_part_errors(method, "aggregate"):
            aggregation = method.aggregate(server_round, updates, state)
        aggregation = validate_aggregation(aggregation, method.name, len(updates), state.models)
        return _copy_if_shared(updates, aggregation)

    def _next_state(
        self, plan: RoundPlan, updates: Sequence[ClientUpdate], aggregation: Aggregation
    ) -> RunState:
        """Return the state after the round: new global models, and new states of all parts."""
        state, sampler = plan.state, self.algorithm.sampler
        models, optimizer = self._apply_server_optimizer(state, aggregation)
        if not all(model.is_finite() for model in models.values()):
            raise DivergedError(plan.number, "the global model", state)
        sent = {update.client_id: plan.messages[update.client_id] for update in updates}
        feedback = SamplerFeedback(
            plan.number, updates, sent, aggregation.report, self.head, self.num_outputs
        )
        with catch_part_errors(sampler, "learn"):
            sampler_state = sampler.learn(feedback, state.sampler)
        check_tensors(sampler_state, f"The state of {sampler.name}")
        return replace(
            state,
            round=plan.number,
            server=ServerState(models, aggregation.tensors),
            sampler=_copy_tensors(sampler_state, _list_storages(updates)),
            server_optimizer=optimizer,
            clock=self._clock_after(plan, aggregation),
        )

    def _clock_after(self, plan: RoundPlan, aggregation: Aggregation) -> float:
        """Return the simulated time after the round.

        The round ends when the slowest participant is done, unless the method returns a clock.
        """
        before, clock = plan.state.clock, aggregation.clock
        if self.estimate_seconds is None:
            return before
        if clock is None:
            return before + float(self.estimate_seconds(list(plan.messages)).max())
        return validate_clock(clock, before, self.algorithm.method.name)

    def _prepare_updates(
        self, plan: RoundPlan, accepted: Sequence[ClientUpdate]
    ) -> tuple[list[ClientUpdate], dict[ClientId, int]]:
        """Limit the numbers of samples and apply the server's transforms.

        Returns:
            The updates to aggregate, and the reported number of samples of each limited client.
        """
        counts = limit_counts([update.num_samples for update in accepted], self.count_limit)
        updates = [
            replace(update, num_samples=count, message=self._apply_transforms(plan, update))
            for update, count in zip(accepted, counts, strict=True)
        ]
        pairs = zip(accepted, counts, strict=True)
        return updates, {u.client_id: u.num_samples for u, n in pairs if n < u.num_samples}

    def _apply_transforms(self, plan: RoundPlan, update: ClientUpdate) -> Message:
        """Return the message of a client after the transforms that the server applies."""
        transforms, client = self.algorithm.get_transforms("server"), update.client_id
        if not transforms:
            return update.message
        with catch_part_errors(transforms[-1], "apply"):
            message = apply_transforms(
                transforms,
                update.message,
                plan.messages[client],
                len(plan.messages),
                lambda name: derive_generator(self.seed, "transform", name, plan.number, client),
            )
        if message is update.message:
            return message
        method, state = self.algorithm.method, plan.state.server
        if reason := find_defect(replace(update, message=message), method, state):
            raise RunError(
                f"After the transform {transforms[-1].name}, the update of client {client} is "
                f"invalid: {reason}."
            )
        return message

    def _apply_server_optimizer(
        self, state: RunState, aggregation: Aggregation
    ) -> tuple[dict[str, ModelState], dict[str, TensorState]]:
        """Return the new global models and the state of the server optimizer for each."""
        models, optimizer_states = dict(state.server.models), dict(state.server_optimizer)
        optimizer = self.algorithm.server_optimizer
        for name, aggregated in aggregation.models.items():
            before = models.get(name, aggregated)  # the method may have added a model
            with catch_part_errors(optimizer, "step"):
                parameters, new_state = optimizer.step(
                    before.parameters, aggregated.parameters, optimizer_states.get(name, {})
                )
            check_tensors(
                {"the model": parameters, **new_state}, f"The results of {optimizer.name}.step"
            )
            if parameters.shape != aggregated.parameters.shape:
                raise CadisError(f"{optimizer.name}.step must return a model of the same shape.")
            models[name] = replace(aggregated, parameters=parameters)
            if new_state:
                optimizer_states[name] = new_state
        return models, optimizer_states

    def _server_round(self, number: int, available: AvailableClients) -> ServerRound:
        server_round = ServerRound(
            number=number,
            head=self.head,
            num_clients=available.num_clients,
            generator=derive_generator(self.seed, "aggregate", number),
            true_clusters=self.true_clusters,
            num_outputs=self.num_outputs,
            clients=available.clients,
        )
        if self.estimate_seconds is None:
            return server_round
        return replace(server_round, estimate_seconds=self.estimate_seconds)

    def _make_too_few_error(self, number: int, outcome: RoundOutcome, state: RunState) -> RunError:
        if outcome.rejected and all(r.reason == NOT_FINITE for r in outcome.rejected):
            return DivergedError(number, "every client's model", state)
        reasons = "; ".join(f"{r.client}: {r.reason}" for r in outcome.rejected)
        return RunError(
            f"Round {number} failed {self.attempts} times: it had {len(outcome.updates)} valid "
            f"updates and needs {self.min_updates} ({reasons})."
        )


def _copy_if_shared(updates: Sequence[ClientUpdate], aggregation: Aggregation) -> Aggregation:
    """Copy tensors that share storage with the updates, which the next round overwrites."""
    storages = _list_storages(updates)
    models = {
        name: ModelState(**_copy_tensors(model.vectors(), storages))
        for name, model in aggregation.models.items()
    }
    return replace(aggregation, models=models, tensors=_copy_tensors(aggregation.tensors, storages))


def _list_storages(updates: Sequence[ClientUpdate]) -> set[int]:
    pieces = (piece for update in updates for piece in update.message.iter_tensors())
    return {piece.untyped_storage().data_ptr() for piece in pieces}


def _copy_tensors(tensors: TensorState, storages: set[int]) -> dict[str, Tensor]:
    """Copy the tensors whose storage is one of ``storages``; keep the others."""
    return {
        name: tensor.clone() if tensor.untyped_storage().data_ptr() in storages else tensor
        for name, tensor in tensors.items()
    }
