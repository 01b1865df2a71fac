"""The rounds of a run: sample, broadcast, train, validate, aggregate, optimize, test, record.

The engine and the Flower strategy run :class:`Server`, each with its own
:class:`~cadis.server.transport.Transport` to the clients.
"""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from cadis.algorithm import (
    Aggregation,
    Algorithm,
    EstimateSeconds,
    ServerRound,
    ServerState,
    average_models,
)
from cadis.algorithm.samplers import SamplerFeedback, SamplerRound
from cadis.algorithm.transforms import apply_transforms
from cadis.algorithm.weight_limits import limit_counts
from cadis.errors import RunError
from cadis.rng import derive_generator, derive_seed
from cadis.server import part_calls
from cadis.server.exclusion import (
    aggregate_without_culprits,
    has_finite_vectors,
    make_rejection,
)
from cadis.server.outcome import RoundOutcome, UpdateSummary, make_record
from cadis.server.part_calls import catch_part_errors
from cadis.server.records import Rejection, RoundResult, RunState, Seconds
from cadis.server.recovery import exclude_clients, has_diverged, return_to_fallback
from cadis.server.shared_storage import copy_aggregation, copy_if_shared
from cadis.server.transport import AvailableClients, RoundPlan, Transport
from cadis.server.update_limits import SizeCheck, check_sizes
from cadis.server.validation import NOT_FINITE, DivergedError, find_defect, split_valid
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState

_NEWEST_AT_FIRST = 6
"""In round t the newest model has at least the weight 6 / (t + 5) in the average of models."""


@dataclass(frozen=True)
class Server:
    """The server of a federation.

    Attributes:
        algorithm: the method, sampler, server optimizer and other parts.
        head: slices of a model's parameters that are the classifier layer.
        seed: seed of all random numbers.
        true_clusters: true cluster of each client, if known.
        num_outputs: number of outputs of the classifier layer; 0 without such a layer.
        count_limit: largest share of the samples of a round that a client gets by the number that
            it reports, as a multiple of an equal share; None for no limit, if the server counted
            the samples itself.
        buffers: slice of each floating-point buffer in ``ModelState.buffers``, by name.
        min_updates: number of valid updates that a round needs.
        attempts: number of times that a round is attempted before the run fails.
        on_outcome: function that is called after every attempt, successful or not.
        estimate_seconds: function from clients to their simulated training times; None if no time
            is simulated.
    """

    algorithm: Algorithm
    head: tuple[slice, ...]
    seed: int
    true_clusters: Mapping[ClientId, int] | None = None
    num_outputs: int = 0
    count_limit: float | None = None
    buffers: Mapping[str, slice] = field(default_factory=dict)
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
        generator = derive_generator(self.seed, "init")
        state = part_calls.init_state(self.algorithm.method, model, generator)
        return RunState(0, state, run=run)

    def rounds(
        self, state: RunState, transport: Transport, last: int
    ) -> Generator[RoundResult, None, None]:
        """Run the rounds after ``state``, up to round ``last``; yield the result of each."""
        for round_number in range(state.round + 1, last + 1):
            result = self._run_round(round_number, state, transport)
            state = result.state  # before the yield, so that the old state is freed
            yield result

    def _run_round(self, round_number: int, state: RunState, transport: Transport) -> RoundResult:
        """Attempt a round until it has enough valid updates, then test the new global models."""
        started, excluded = time.perf_counter(), list[Rejection]()
        for attempt in range(self.attempts):
            options = round_number, transport, attempt
            outcome, train_seconds = self._attempt(state, excluded, *options)
            if outcome.has_diverged and state.fallback is not None:
                state, excluded = return_to_fallback(state)
                outcome, train_seconds = self._attempt(state, excluded, *options)
            if outcome.state is not None:
                break
        else:
            raise self._make_too_few_error(round_number, outcome, state)
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
            round_number, outcome, test_result, seconds, client_models, self.algorithm.task
        )
        if self.estimate_seconds is not None:
            record = replace(record, clock=outcome.state.clock)
        return RoundResult(record, evaluation, outcome.state)

    def _attempt(
        self,
        state: RunState,
        excluded: Sequence[Rejection],
        round_number: int,
        transport: Transport,
        attempt: int,
    ) -> tuple[RoundOutcome, float]:
        """Attempt a round; return the outcome and the training time in seconds.

        This is a separate function so that messages and updates are freed before the test.
        """
        plan = self.plan(round_number, state, transport, attempt, excluded)
        started = time.perf_counter()
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
        return part_calls.get_model_name(self.algorithm.method, client, state)

    def plan(
        self,
        round_number: int,
        state: RunState,
        transport: Transport,
        attempt: int = 0,
        excluded: Sequence[Rejection] = (),
    ) -> RoundPlan:
        """Choose the participants of a round and make the message to each.

        Args:
            round_number: number of the round, from 1.
            state: state before the round.
            transport: connection to the clients.
            attempt: index of the attempt, from 0; each attempt draws other participants.
            excluded: clients that must not take part, and the reasons.
        """
        available = exclude_clients(transport.available_clients(), excluded)
        sampler, method = self.algorithm.sampler, self.algorithm.method
        server_round = self._make_server_round(round_number, available)
        eligible = part_calls.get_eligible_clients(method, server_round, state.server)
        seed = derive_seed(self.seed, "again", attempt) if attempt else self.seed
        sampler_round = SamplerRound(
            number=round_number,
            available=eligible,
            num_participants=min(available.num_participants, len(eligible)),
            generator=derive_generator(seed, "participants", round_number),
            cluster_labels=partial(
                part_calls.get_cluster_labels, method, server_round, state.server
            ),
            client_profiles=partial(part_calls.get_client_profiles, method, state.server),
        )
        participants = part_calls.choose_participants(sampler, sampler_round, state.sampler)
        messages = {
            client: part_calls.make_message(method, server_round, state.server, client)
            for client in participants
        }
        return RoundPlan(round_number, state, available, messages)

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
        valid, invalid = split_valid(received, self.algorithm.method, plan.state.server)
        checked = check_sizes(valid, plan.state.server, self.buffers)
        updates, excessive_counts = self._prepare_updates(plan, checked.accepted)
        summaries = [UpdateSummary.from_update(update) for update in updates]
        rejected = [*plan.available.rejected, *failed, *invalid, *checked.rejected]
        outcome = RoundOutcome(summaries, rejected, excessive_counts)
        if has_diverged(len(updates), rejected, can_return=plan.state.fallback is not None):
            outcome = replace(outcome, has_diverged=True)
        elif len(updates) >= self.min_updates:
            outcome = self._aggregate_updates(plan, outcome, updates, checked)
            accepted = {update.client_id for update in outcome.updates}
            kept = [update for update in checked.accepted if update.client_id in accepted]
            assert outcome.state is not None
            state = transport.update_state(outcome.state, kept)
            outcome = replace(outcome, state=state, seconds=time.perf_counter() - started)
        self.on_outcome(outcome)
        return outcome

    def _aggregate_updates(
        self,
        plan: RoundPlan,
        outcome: RoundOutcome,
        updates: Sequence[ClientUpdate],
        checked: SizeCheck,
    ) -> RoundOutcome:
        """Aggregate valid updates, without those that make the aggregation fail."""
        (aggregation, state), excluded, error = aggregate_without_culprits(
            partial(self._aggregate, plan), updates, checked.lengths, self.min_updates
        )
        culprits = [updates[index].client_id for index in excluded]
        suspects = tuple(client for client in checked.suspects if client not in culprits)
        if suspects:
            before = replace(plan.state, fallback=None, suspects=())
            state = replace(state, fallback=before, suspects=suspects)
        return replace(
            outcome,
            updates=[update for update in outcome.updates if update.client_id not in culprits],
            rejected=[*outcome.rejected, *(make_rejection(client, error) for client in culprits)],
            aggregation=aggregation,
            state=state,
        )

    def _aggregate(
        self, plan: RoundPlan, updates: Sequence[ClientUpdate]
    ) -> tuple[Aggregation, RunState]:
        """Return the method's aggregation of valid updates, and the state after the round."""
        server_round = self._make_server_round(plan.number, plan.available)
        method = self.algorithm.method
        aggregation = part_calls.aggregate(method, server_round, updates, plan.state.server)
        aggregation = copy_aggregation(aggregation, updates)
        return aggregation, self._next_state(plan, updates, aggregation)

    def _next_state(
        self, plan: RoundPlan, updates: Sequence[ClientUpdate], aggregation: Aggregation
    ) -> RunState:
        """Return the state after the round: new global models, and new states of all parts."""
        state = plan.state
        models, optimizer_states = self._apply_server_optimizer(state, aggregation)
        if not all(model.is_finite() for model in models.values()):
            raise DivergedError(plan.number, "the global model", state)
        feedback = SamplerFeedback(
            number=plan.number,
            updates=updates,
            sent={update.client_id: plan.messages[update.client_id] for update in updates},
            report=aggregation.report,
            head=self.head,
            num_outputs=self.num_outputs,
            participants=list(plan.messages),
        )
        sampler_state = part_calls.update_sampler(self.algorithm.sampler, feedback, state.sampler)
        new_state = replace(
            state,
            round=plan.number,
            server=ServerState(models, aggregation.tensors),
            sampler=copy_if_shared(sampler_state, updates),
            server_optimizer=optimizer_states,
            clock=self._compute_clock(plan, aggregation),
            averages=self._average_models(plan, models),
            fallback=None,
            suspects=(),
        )
        if not has_finite_vectors(new_state):
            raise DivergedError(plan.number, "the state of the server", state)
        return new_state

    def _average_models(
        self, plan: RoundPlan, models: Mapping[str, ModelState]
    ) -> dict[str, ModelState]:
        """Return the moving average of each model; empty if the server optimizer needs none."""
        smallest = self.algorithm.server_optimizer.averaging
        if smallest == 1:
            return {}
        newest = max(smallest, _NEWEST_AT_FIRST / (plan.number - 1 + _NEWEST_AT_FIRST))
        averages = plan.state.averages
        return {
            name: average_models([averages.get(name, model), model], [1 - newest, newest])
            for name, model in models.items()
        }

    def _compute_clock(self, plan: RoundPlan, aggregation: Aggregation) -> float:
        """Return the simulated time after the round.

        The round ends when the slowest participant finishes, unless the method returns a time.
        """
        start = plan.state.clock
        if self.estimate_seconds is None:
            return start
        if aggregation.clock is None:
            return start + float(self.estimate_seconds(list(plan.messages)).max())
        return part_calls.validate_clock(aggregation.clock, start, self.algorithm.method)

    def _prepare_updates(
        self, plan: RoundPlan, accepted: Sequence[ClientUpdate]
    ) -> tuple[list[ClientUpdate], dict[ClientId, int]]:
        """Limit the numbers of samples and apply the server's transforms.

        Returns:
            The updates to aggregate; and the number of samples that a client reported, for each
            client that reported too many.
        """
        counts = limit_counts([update.num_samples for update in accepted], self.count_limit)
        updates, excessive_counts = [], {}
        for update, count in zip(accepted, counts, strict=True):
            message = self._apply_transforms(plan, update)
            updates.append(replace(update, num_samples=count, message=message))
            if count < update.num_samples:
                excessive_counts[update.client_id] = update.num_samples
        return updates, excessive_counts

    def _apply_transforms(self, plan: RoundPlan, update: ClientUpdate) -> Message:
        """Return a client's message after the transforms that the server applies to it."""
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
        """Return the new global models, and the state of the server optimizer for each model."""
        models, optimizer_states = dict(state.server.models), dict(state.server_optimizer)
        for name, aggregated in aggregation.models.items():
            sent = models.get(name, aggregated)  # the method may have added a model
            parameters, new_state = part_calls.step_server_optimizer(
                self.algorithm.server_optimizer, sent, aggregated, optimizer_states.get(name, {})
            )
            models[name] = replace(aggregated, parameters=parameters)
            if new_state:
                optimizer_states[name] = new_state
        return models, optimizer_states

    def _make_server_round(self, round_number: int, available: AvailableClients) -> ServerRound:
        server_round = ServerRound(
            number=round_number,
            head=self.head,
            num_clients=available.num_clients,
            generator=derive_generator(self.seed, "aggregate", round_number),
            true_clusters=self.true_clusters,
            num_outputs=self.num_outputs,
            clients=available.clients,
        )
        if self.estimate_seconds is None:
            return server_round
        return replace(server_round, estimate_seconds=self.estimate_seconds)

    def _make_too_few_error(
        self, round_number: int, outcome: RoundOutcome, state: RunState
    ) -> RunError:
        """Return the error for a round with too few valid updates."""
        has_few = len(outcome.updates) < 2
        if has_few and outcome.rejected and all(r.reason == NOT_FINITE for r in outcome.rejected):
            only = [f" except that of client {update.client_id}" for update in outcome.updates]
            return DivergedError(round_number, f"every client's model{''.join(only)}", state)
        reasons = "; ".join(f"{r.client}: {r.reason}" for r in outcome.rejected)
        required = max(self.min_updates, 1 + outcome.has_diverged)
        return RunError(
            f"Round {round_number} failed (attempts: {self.attempts}). Valid updates in the last "
            f"attempt: {len(outcome.updates)}; required: {required} ({reasons})."
        )
