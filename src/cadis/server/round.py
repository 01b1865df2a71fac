"""One round, written once: choose, send, train, check, aggregate, step, test, record.

The way to the clients is a :class:`~cadis.server.Transport`; all the rest is here.
"""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from cadis.algorithm import Aggregation, Algorithm, SecondsOf, ServerRound, ServerState
from cadis.algorithm.samplers import SampledRound, SamplerRound
from cadis.algorithm.transforms import apply_chain
from cadis.errors import CadisError, RunError
from cadis.rng import derive_seed, generator_for
from cadis.server.outcome import RoundOutcome, UpdateSummary, record_of
from cadis.server.records import Rejection, RoundResult, RunState, Seconds
from cadis.server.transport import AvailableClients, RoundPlan, Transport
from cadis.server.user_errors import (
    calling,
    check_chosen,
    check_eligible,
    check_tensors,
    checked_aggregation,
    checked_clock,
    checked_message,
    checked_state,
)
from cadis.server.validation import (
    NOT_FINITE,
    DivergedError,
    check_answer,
    limited_counts,
    split_valid,
)
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState


@dataclass(frozen=True)
class Server:
    """The server of a federation.

    Attributes:
        algorithm: how it learns.
        head: where the classifier layer lies among a model's parameters.
        seed: of everything random.
        true_clusters: who really belongs together, where that is known.
        num_outputs: rows of the classifier layer's weight.
        count_limit: how many times the median of a round's counts of samples a client may count
            for, where counts are what clients say; None where they were counted here.
        min_updates: the fewest good updates to make a new global model of.
        attempts: how often a round with too few good updates is tried.
        on_outcome: called with what came of the answers of a round, also of a failed attempt.
        seconds_of: the simulated time that clients take; None where nothing is simulated.
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
    seconds_of: SecondsOf | None = None

    def start(self, model: ModelState, run: str = "") -> RunState:
        """The state before the first round, from the initial model."""
        method = self.algorithm.method
        with calling(method, "init"):
            state = method.init(model, generator_for(self.seed, "init"))
        return RunState(0, checked_state(state, method.name), run=run)

    def rounds(
        self, state: RunState, transport: Transport, last: int
    ) -> Generator[RoundResult, None, None]:
        """Run the rounds that follow ``state``, up to the ``last``."""
        for number in range(state.round + 1, last + 1):
            result = self._round(number, state, transport)
            state = result.state  # before it is kept: what was before may be large, and goes
            yield result

    def _round(self, number: int, state: RunState, transport: Transport) -> RoundResult:
        started = time.perf_counter()
        for attempt in range(self.attempts):
            outcome, trained = self._attempt(number, state, transport, attempt)
            if outcome.state is not None and outcome.aggregation is not None:
                break
        else:
            raise self._too_few(number, outcome, state)
        model_name_for = partial(self.model_name_for, outcome.state.server)
        tested = transport.test(outcome.state, model_name_for)
        seconds = Seconds(
            train=trained,
            aggregate=outcome.seconds,
            evaluate=tested.seconds,
            total=time.perf_counter() - started,
        )
        users = self.users(outcome.state, transport.everyone())
        record, evaluation = record_of(number, outcome, tested, seconds, users, self.algorithm.task)
        if self.seconds_of is not None:
            record = replace(record, clock=outcome.state.clock)
        return RoundResult(record, evaluation, outcome.state)

    def _attempt(
        self, number: int, state: RunState, transport: Transport, attempt: int
    ) -> tuple[RoundOutcome, float]:
        """Return what came of an attempt, and the seconds that clients trained.

        All messages and updates are freed.
        """
        plan, started = self.plan(number, state, transport, attempt), time.perf_counter()
        updates, failed = transport.train(plan)
        seconds = [update.seconds for update in updates if update.seconds is not None]
        known = len(seconds) == len(updates)
        spent = sum(seconds) if known else time.perf_counter() - started
        return self.conclude(plan, updates, failed, transport), spent

    def users(self, state: RunState, clients: Sequence[ClientId]) -> list[str]:
        """The model that each of the clients uses; nothing where there is only one."""
        if len(state.server.models) < 2:
            return []
        return [self.model_name_for(state.server, client) for client in clients]

    def model_name_for(self, state: ServerState, client: ClientId) -> str:
        """The name of the model that a client uses, as the method says."""
        method = self.algorithm.method
        with calling(method, "model_name_for"):
            name = method.model_name_for(client, state)
        if name not in state.models:
            raise CadisError(
                f"{method.name}.model_name_for says '{name}', which is none of its models."
            )
        return name

    def plan(
        self, number: int, state: RunState, transport: Transport, attempt: int = 0
    ) -> RoundPlan:
        """Choose the participants, others in every attempt, and what each of them is sent."""
        presence = transport.presence()
        seed = derive_seed(self.seed, "again", attempt) if attempt else self.seed
        generator = generator_for(seed, "participants", number)
        sampler, method = self.algorithm.sampler, self.algorithm.method
        server_round = self._server_round(number, presence)
        eligible_clients = self._eligible_clients(server_round, state.server)
        wanted = min(presence.wanted, len(eligible_clients))

        def cluster_labels(clients: Sequence[ClientId]) -> Tensor:
            with calling(method, "cluster_labels"):
                return method.cluster_labels(server_round, state.server, clients)

        among = SamplerRound(number, eligible_clients, wanted, generator, cluster_labels)
        with calling(sampler, "choose"):
            chosen = list(sampler.choose(among, state.sampler))
        check_chosen(chosen, eligible_clients, wanted, sampler.name)
        with calling(method, "broadcast"):
            messages = {
                client: checked_message(
                    method.broadcast(server_round, state.server, client), method.name
                )
                for client in chosen
            }
        return RoundPlan(number, state, presence, messages)

    def _eligible_clients(
        self, server_round: ServerRound, state: ServerState
    ) -> Sequence[ClientId]:
        """Those who may take part, as the method says."""
        method, there = self.algorithm.method, server_round.clients
        with calling(method, "eligible_clients"):
            found = method.eligible_clients(server_round, state, there)
        return check_eligible(found, there, method.name)

    def conclude(
        self,
        plan: RoundPlan,
        received: Sequence[ClientUpdate],
        failed: Sequence[Rejection],
        transport: Transport,
    ) -> RoundOutcome:
        """Aggregate the valid updates, if they are enough; ``failed`` says whose did not come."""
        started = time.perf_counter()
        accepted, unfit = split_valid(received, self.algorithm.method, plan.state.server)
        updates, capped = self._updates(plan, accepted)
        summaries = [UpdateSummary.by(update) for update in updates]
        outcome = RoundOutcome(summaries, [*plan.presence.refused, *failed, *unfit], capped)
        if len(updates) >= self.min_updates:
            aggregation = self._call_aggregate(plan, updates)
            state = transport.remember(self._next_state(plan, updates, aggregation), accepted)
            spent = time.perf_counter() - started
            outcome = replace(outcome, aggregation=aggregation, state=state, seconds=spent)
        self.on_outcome(outcome)
        return outcome

    def _call_aggregate(self, plan: RoundPlan, updates: Sequence[ClientUpdate]) -> Aggregation:
        """What the method makes of the updates."""
        method, sent = self.algorithm.method, plan.state.server
        server_round = self._server_round(plan.number, plan.presence)
        with calling(method, "aggregate"):
            aggregation = method.aggregate(server_round, updates, sent)
        checked = checked_aggregation(aggregation, method.name, len(updates), sent.models)
        return _copy_if_shared(updates, checked)

    def _next_state(
        self, plan: RoundPlan, updates: Sequence[ClientUpdate], aggregation: Aggregation
    ) -> RunState:
        """What the next round begins with: stepped models, and what each part remembers."""
        state, sampler = plan.state, self.algorithm.sampler
        models, optimizer = self._apply_server_optimizer(state, aggregation)
        if not all(model.is_finite() for model in models.values()):
            raise DivergedError(plan.number, "the global model", state)
        sent = {update.client_id: plan.messages[update.client_id] for update in updates}
        known = aggregation.report, self.head, self.num_outputs
        with calling(sampler, "learn"):
            sampled = SampledRound(plan.number, updates, sent, *known)
            learned = sampler.learn(sampled, state.sampler)
        check_tensors(learned, f"The memory of {sampler.name}")
        return replace(
            state,
            round=plan.number,
            server=ServerState(models, aggregation.memory),
            sampler=_copied(learned, _storages(updates)),
            server_optimizer=optimizer,
            clock=self._clock_after(plan, aggregation),
        )

    def _clock_after(self, plan: RoundPlan, aggregation: Aggregation) -> float:
        """The simulated time: when the slowest participant is done, unless the method knows."""
        before, told = plan.state.clock, aggregation.clock
        if self.seconds_of is None:
            return before
        if told is None:
            return before + float(self.seconds_of(list(plan.messages)).max())
        return checked_clock(told, before, self.algorithm.method.name)

    def _updates(
        self, plan: RoundPlan, accepted: Sequence[ClientUpdate]
    ) -> tuple[list[ClientUpdate], dict[ClientId, int]]:
        """The updates as they are aggregated, and what those said whose count was limited."""
        counts = [answer.num_examples for answer in accepted]
        limited = limited_counts(counts, self.count_limit)
        updates = [
            replace(answer, num_examples=count, message=self._transformed(plan, answer))
            for answer, count in zip(accepted, limited, strict=True)
        ]
        pairs = zip(accepted, limited, strict=True)
        return updates, {a.client_id: a.num_examples for a, n in pairs if n < a.num_examples}

    def _transformed(self, plan: RoundPlan, answer: ClientUpdate) -> Message:
        """What a client sent, after the transforms of the server."""
        transforms, who = self.algorithm.transforms_of("server"), answer.client_id
        if not transforms:
            return answer.message
        sent, number = plan.messages[who], len(plan.messages)
        with calling(transforms[-1], "apply"):
            message = apply_chain(
                transforms,
                answer.message,
                sent,
                number,
                lambda name: generator_for(self.seed, "transform", name, plan.number, who),
            )
        if message is answer.message:
            return message
        method, state = self.algorithm.method, plan.state.server
        if reason := check_answer(replace(answer, message=message), method, state):
            raise RunError(f"After {transforms[-1].name}, the update of {who} is wrong: {reason}.")
        return message

    def _apply_server_optimizer(
        self, state: RunState, aggregation: Aggregation
    ) -> tuple[dict[str, ModelState], dict[str, TensorState]]:
        """The next global models, and what the server optimiser remembers of each."""
        models, memories = dict(state.server.models), dict(state.server_optimizer)
        optimizer = self.algorithm.server_optimizer
        for name, aggregated in aggregation.models.items():
            before = models.get(name, aggregated)  # a model may be new
            with calling(optimizer, "step"):
                parameters, memory = optimizer.step(
                    before.parameters, aggregated.parameters, memories.get(name, {})
                )
            check_tensors(
                {"the model": parameters, **memory}, f"What {optimizer.name}.step returns"
            )
            if parameters.shape != aggregated.parameters.shape:
                raise CadisError(f"{optimizer.name}.step must return a model of the same shape.")
            models[name] = replace(aggregated, parameters=parameters)
            if memory:
                memories[name] = memory
        return models, memories

    def _server_round(self, number: int, presence: AvailableClients) -> ServerRound:
        known = ServerRound(
            number=number,
            head=self.head,
            num_clients=presence.num_clients,
            generator=generator_for(self.seed, "aggregate", number),
            true_clusters=self.true_clusters,
            num_outputs=self.num_outputs,
            clients=presence.clients,
        )
        return known if self.seconds_of is None else replace(known, seconds_of=self.seconds_of)

    def _too_few(self, number: int, outcome: RoundOutcome, state: RunState) -> RunError:
        if outcome.rejected and all(r.reason == NOT_FINITE for r in outcome.rejected):
            return DivergedError(number, "every client's model", state)
        reasons = "; ".join(f"{r.client}: {r.reason}" for r in outcome.rejected)
        return RunError(
            f"Round {number} had {len(outcome.updates)} good updates of at least "
            f"{self.min_updates}, {self.attempts} times ({reasons})."
        )


def _copy_if_shared(updates: Sequence[ClientUpdate], aggregation: Aggregation) -> Aggregation:
    """An aggregation that shares no memory with the updates: the next ones come to their place."""
    taken = _storages(updates)
    models = {
        name: ModelState(**_copied(model.vectors(), taken))
        for name, model in aggregation.models.items()
    }
    return replace(aggregation, models=models, memory=_copied(aggregation.memory, taken))


def _storages(updates: Sequence[ClientUpdate]) -> set[int]:
    pieces = (piece for update in updates for piece in update.message.pieces())
    return {piece.untyped_storage().data_ptr() for piece in pieces}


def _copied(tensors: TensorState, taken: set[int]) -> dict[str, Tensor]:
    """The same tensors, of which those that lie in these storages are copied."""
    return {
        name: tensor.clone() if tensor.untyped_storage().data_ptr() in taken else tensor
        for name, tensor in tensors.items()
    }
