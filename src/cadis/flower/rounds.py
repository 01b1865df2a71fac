"""One round on Flower: whom to ask for what, and what to make of the answers."""

import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from cadis.core import CadisError, ClientId, derive_seed, sample_participants
from cadis.flower.arrays import ArrayLayout, WrongArraysError
from cadis.flower.gathering import LOGGER, gather
from cadis.flower.registry import ClientRegistry
from cadis.flower.replies import Asked, Checker, Outcome, count_in, match
from cadis.flower.settings import StrategySettings
from cadis.flower.train_config import TrainConfig
from cadis.methods import ClientUpdate, Method
from cadis.runs import Rejection, RunState
from cadis.training import ServerHalf, limited_counts


@dataclass
class Rounds:
    """What a server knows from round to round.

    Attributes:
        method: how the federation learns.
        settings: how to go about it.
        layout: names and shapes of the model's arrays.
        state: what the next round depends on.
        registry: who is who.
        timeout: seconds to wait for answers.
    """

    method: Method
    settings: StrategySettings
    layout: ArrayLayout
    state: RunState
    registry: ClientRegistry = field(default_factory=ClientRegistry)
    timeout: float = 3600.0
    _asked: Asked | None = field(default=None, init=False)
    _begun: bool = field(default=False, init=False)
    _testers: Mapping[ClientId, Message] = field(default_factory=dict, init=False)

    @classmethod
    def begin(cls, method: Method, settings: StrategySettings, arrays: ArrayRecord) -> "Rounds":
        """Before the first round."""
        layout = ArrayLayout.of(arrays, settings.head)
        if method.compares_heads and not layout.head:
            raise CadisError(
                f"{method.name} compares the classifier layers, but none of the model's arrays is "
                "the weight of a linear one; name it as head."
            )
        start = RunState(0, layout.to_state(arrays), {}, run=secrets.token_hex(8))
        return cls(method, settings, layout, start)

    def go_on(self, state: RunState) -> None:
        """Continue from a checkpoint."""
        self.state, self.registry = state, ClientRegistry.of(state.members)

    def ask(
        self,
        number: int,
        arrays: ArrayRecord,
        config: Mapping[str, Any],
        grid: Grid,
        attempt: int = 0,
    ) -> list[Message]:
        """Choose clients from those present; each is told what to do, and as whom.

        Args:
            number: the round.
            arrays: the global model.
            config: what the user wants clients to know.
            grid: Flower's connection to the nodes.
            attempt: how often the round was tried before; every time others are chosen.
        """
        present, refused = self._present(grid)
        seed = derive_seed(self.settings.seed, "again", attempt) if attempt else self.settings.seed
        wanted = self.settings.trainers(len(present))
        chosen = _chosen(seed, number, present, wanted)
        LOGGER.info("Round %d: %d of %d clients train.", number, len(chosen), len(present))
        messages = {
            client: self._message(
                node, arrays, self._orders(number, client).config(config), MessageType.TRAIN
            )
            for client, node in chosen.items()
        }
        self._asked = Asked(self.layout.to_state(arrays), messages, refused, time.perf_counter())
        return list(messages.values())

    def take(self, number: int, replies: Iterable[Message]) -> Outcome:
        """Make a new global model of the good answers, if they are enough."""
        asked = self._asked
        if asked is None:
            raise CadisError("Nobody was asked: call configure_train before aggregate_train.")
        answers = match(asked.messages, replies, self.timeout)
        waited = time.perf_counter() - asked.at
        checker = Checker(self.method, self.layout, self.settings.weighted_by_key)
        updates, rejected = checker.updates(answers)
        used = [answers.good[update.client_id] for update in updates]
        outcome = Outcome(
            updates, [*asked.refused, *rejected], used, waited, capped=self._capped(updates)
        )
        _tell(outcome)
        if len(updates) < self.settings.min_replies:
            return outcome
        started = time.perf_counter()
        num_clients = self.settings.num_clients or len(self.registry.members)
        half = ServerHalf(
            self.method,
            self.layout.head,
            num_clients,
            self.settings.seed,
            count_limit=self.settings.count_limit,
        )
        new = half.aggregate(number, asked.sent, updates, self.state.method_state)
        self.registry.take_part([update.client_id for update in updates], number)
        members = tuple(self.registry.members.values())
        self.state = RunState(
            number, new.state, new.method_state, run=self.state.run, members=members
        )
        return replace(outcome, aggregation=new, aggregated=time.perf_counter() - started)

    def ask_to_test(
        self, number: int, arrays: ArrayRecord, config: Mapping[str, Any], grid: Grid
    ) -> list[Message]:
        """Choose clients from those present that test the global model."""
        present, _ = self.registry.call(grid.get_nodes() if self.settings.fraction_evaluate else [])
        wanted = self.settings.testers(len(present))
        chosen = _chosen(derive_seed(self.settings.seed, "testers"), number, present, wanted)
        told = ConfigRecord({**config, "server-round": number})
        self._testers = {
            client: self._message(node, arrays, told, MessageType.EVALUATE)
            for client, node in chosen.items()
        }
        return list(self._testers.values())

    def take_tests(self, replies: Iterable[Message]) -> list[Message]:
        """The answers of clients that have tested the global model."""
        answers = match(self._testers, replies, self.timeout)
        good, rejected = [], list(answers.rejected)
        for client, message in answers.good.items():
            try:
                count_in(message, self.settings.weighted_by_key)
                good.append(message)
            except WrongArraysError as error:
                rejected.append(Rejection(client, str(error)))
        for rejection in rejected:
            LOGGER.warning("Client %s has not tested: %s.", rejection.client, rejection.reason)
        return good

    def _capped(self, updates: list[ClientUpdate]) -> tuple[ClientId, ...]:
        """Who says that it has far more samples than the others, and counts for fewer."""
        counts = [update.num_examples for update in updates]
        capped = []
        for update, count in zip(
            updates, limited_counts(counts, self.settings.count_limit), strict=True
        ):
            if count < update.num_examples:
                capped.append(update.client_id)
                LOGGER.warning(
                    "Client %s says that it has %d samples, and counts as if it had %d: %g times "
                    "the median, which is the most.",
                    update.client_id,
                    update.num_examples,
                    count,
                    self.settings.count_limit,
                )
        return tuple(capped)

    def _present(self, grid: Grid) -> tuple[dict[ClientId, int], list[Rejection]]:
        """Who is there; before the first round, everybody is waited for."""
        needed = self.settings.min_available_nodes
        wanted = needed if self._begun else max(needed, self.settings.num_clients or 0)
        self._begun = True
        return gather(grid, self.registry, wanted, needed, self.settings.patience)

    def _orders(self, number: int, client: ClientId) -> TrainConfig:
        return TrainConfig(
            round=number,
            method=self.method,
            client=client,
            seed=self.settings.seed,
            head=self.layout.head_name,
            run=self.state.run,
            memory_round=self.registry.members[client].last_round,
        )

    def _message(self, node: int, arrays: ArrayRecord, told: ConfigRecord, kind: str) -> Message:
        settings = self.settings
        content = RecordDict({settings.arrayrecord_key: arrays, settings.configrecord_key: told})
        return Message(content, node, kind, ttl=self.timeout)


def _chosen(
    seed: int, number: int, present: dict[ClientId, int], wanted: int
) -> dict[ClientId, int]:
    """Some of the clients present, with their nodes."""
    clients = list(present)
    drawn = sample_participants(seed, number, len(clients), wanted)
    return {clients[place]: present[clients[place]] for place in drawn}


def _tell(outcome: Outcome) -> None:
    for rejection in outcome.rejected:
        LOGGER.warning("Left out client %s: %s.", rejection.client, rejection.reason)
    for update in outcome.updates:
        if update.metrics.get("memory-lost"):
            LOGGER.warning("Client %s has lost its memory and begins anew.", update.client_id)
