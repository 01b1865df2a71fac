"""The transport of Flower: messages to nodes, and who is who among them."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from flwr.app import ArrayRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from cadis.algorithm import Algorithm
from cadis.algorithm.samplers import SamplerRound, Uniform
from cadis.flower.evaluation import EvaluateFunction, combine_tests, join_metrics, join_models
from cadis.flower.messages import contents_of, count_in, scalars_to_config, sent_by_client
from cadis.flower.registry import LOGGER, ClientRegistry, gather
from cadis.flower.strategy_settings import StrategySettings
from cadis.flower.train_config import TrainConfig
from cadis.models import Layout, WrongTensorsError
from cadis.rng import derive_seed, generator_for
from cadis.server import AvailableClients, Rejection, RoundPlan, RunState, Tested
from cadis.types import ClientId, ClientUpdate
from cadis.types import Message as CadisMessage

_Read = TypeVar("_Read")

_LATE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
"""What Flower says of messages whose time is up."""


@dataclass
class FlowerTransport:
    """Delivers messages to Flower's nodes, each as the client that it is.

    Attributes:
        grid: Flower's connection to the nodes.
        algorithm: what clients are told to run.
        settings: how to go about it.
        layout: names and shapes of the model's arrays.
        registry: who is who.
        timeout: seconds to wait for answers.
        train_config: what the user wants clients to know when they train.
        evaluate_config: what the user wants clients to know when they test.
        evaluate_fn: tests a model on the server.
        result: where Flower's users look for the results of tests.
        replies: by client, what the last good answers told: their content without the arrays, or
            all of it if the user's own function makes metrics of it.
    """

    grid: Grid
    algorithm: Algorithm
    settings: StrategySettings
    layout: Layout
    registry: ClientRegistry = field(default_factory=ClientRegistry)
    timeout: float = 3600.0
    train_config: Mapping[str, Any] = field(default_factory=dict)
    evaluate_config: Mapping[str, Any] = field(default_factory=dict)
    evaluate_fn: EvaluateFunction | None = None
    result: Result = field(default_factory=Result)
    replies: dict[ClientId, RecordDict] = field(default_factory=dict, init=False)
    _nodes: Mapping[ClientId, int] = field(default_factory=dict, init=False)
    _begun: bool = field(default=False, init=False)
    _trainers: dict[ClientId, Message] = field(default_factory=dict, init=False)
    _testers: dict[ClientId, Message] = field(default_factory=dict, init=False)

    def presence(self) -> AvailableClients:
        """Return who is there; before the first round, everybody is waited for."""
        settings, needed = self.settings, self.settings.min_available_nodes
        wanted = needed if self._begun else max(needed, settings.num_clients or 0)
        self._begun = True
        self._nodes, refused = gather(self.grid, self.registry, wanted, needed, settings.patience)
        return AvailableClients(
            clients=list(self._nodes),
            wanted=settings.trainers(len(self._nodes)),
            num_clients=settings.num_clients or len(self.registry.members),
            refused=refused,
        )

    def everyone(self) -> Sequence[ClientId]:
        """Return all clients that were ever there."""
        return list(self.registry.members)

    def train(self, plan: RoundPlan) -> tuple[list[ClientUpdate], list[Rejection]]:
        """Send every participant its message, and gather what comes back."""
        messages = self.messages(plan)
        return self.answers(plan, self.grid.send_and_receive(messages, timeout=self.timeout))

    def messages(self, plan: RoundPlan) -> list[Message]:
        """Return the messages to the participants: each is told what to do, and as whom."""
        present, participants = len(plan.presence.clients), len(plan.messages)
        LOGGER.info("Round %d: %d of %d clients train.", plan.number, participants, present)
        contents = contents_of(plan.messages.values(), self.layout, self.settings.arrayrecord_key)
        self._trainers = {}
        for (client, message), content in zip(plan.messages.items(), contents, strict=True):
            config = self._config(client, plan.number, plan.state.run, participants)
            given = {**self.train_config, **scalars_to_config(message)}
            content[self.settings.configrecord_key] = config.config(given)
            node = self._nodes[client]
            self._trainers[client] = Message(content, node, MessageType.TRAIN, ttl=self.timeout)
        return list(self._trainers.values())

    def answers(
        self, plan: RoundPlan, replies: Iterable[Message]
    ) -> tuple[list[ClientUpdate], list[Rejection]]:
        """Return the participants' answers, and whose answer is missing or cannot be read."""
        self.replies = {}
        return self._read_replies(self._trainers, replies, partial(self._read_update, plan))

    def remember(self, state: RunState, accepted: Sequence[ClientUpdate]) -> RunState:
        """Keep who is who, and whose state after this round counts."""
        self.registry.take_part([update.client_id for update in accepted], state.round)
        return replace(state, members=tuple(self.registry.members.values()))

    def test(self, state: RunState, model_name_for: Callable[[ClientId], str]) -> Tested:
        """Test on the server, on clients, or both, as the user wants it."""
        started, federated = time.perf_counter(), None
        messages = self.ask_to_test(state, model_name_for, self.evaluate_config)
        if messages:
            replies = self.grid.send_and_receive(messages, timeout=self.timeout)
            federated = self.take_tests(replies)
        if federated is not None:
            self.result.evaluate_metrics_clientapp[state.round] = federated
        central = self.test_on_server(state)
        users = [model_name_for(c) for c in self.everyone()] if len(central) > 1 else []
        return combine_tests(central, federated, users, time.perf_counter() - started)

    def test_on_server(self, state: RunState) -> dict[str, MetricRecord]:
        """Test every model on the server."""
        if self.evaluate_fn is None:
            return {}
        found = {}
        for name, model in state.server.models.items():
            metrics = self.evaluate_fn(state.round, ArrayRecord(self.layout.unpack(model)))
            if metrics is not None:
                found[name] = metrics
        if found:
            self.result.evaluate_metrics_serverapp[state.round] = join_models(found)
        return found

    def ask_to_test(
        self, state: RunState, model_name_for: Callable[[ClientId], str], given: Mapping[str, Any]
    ) -> list[Message]:
        """Choose clients from those present that test the models that they use."""
        settings = self.settings
        nodes = self.grid.get_nodes() if settings.fraction_evaluate else []
        present, _ = self.registry.call(nodes)
        wanted = settings.testers(len(present))
        seed = derive_seed(settings.seed, "testers")
        generator = generator_for(seed, "participants", state.round)
        among = SamplerRound(state.round, list(present), wanted, generator)
        chosen = Uniform().choose(among, {}) if wanted else ()
        # Each is sent the model that it uses, where the usual one would be.
        sent = [CadisMessage({"model": state.server.models[model_name_for(c)]}) for c in chosen]
        contents = contents_of(sent, self.layout, settings.arrayrecord_key)
        self._testers = {}
        for client, content in zip(chosen, contents, strict=True):
            config = self._config(client, state.round, state.run, participants=1)
            content[settings.configrecord_key] = config.config(given)
            node = present[client]
            self._testers[client] = Message(content, node, MessageType.EVALUATE, ttl=self.timeout)
        return list(self._testers.values())

    def take_tests(self, replies: Iterable[Message]) -> MetricRecord | None:
        """Make one record of the tests of clients, of those that sent any."""

        def read(_client: ClientId, content: RecordDict) -> RecordDict:
            count_in(content, self.settings.weighted_by_key)
            return content

        good, rejected = self._read_replies(self._testers, replies, read)
        for rejection in rejected:
            LOGGER.warning("Client %s has not tested: %s.", rejection.client, rejection.reason)
        return join_metrics(good, self.settings, self.settings.evaluate_metrics_aggr_fn)

    def train_metrics(self, clients: Iterable[ClientId]) -> MetricRecord | None:
        """Make one record of what these clients told of their training."""
        replies = [self.replies[client] for client in clients]
        return join_metrics(replies, self.settings, self.settings.train_metrics_aggr_fn)

    def _read_replies(
        self,
        sent: Mapping[ClientId, Message],
        replies: Iterable[Message],
        read: Callable[[ClientId, RecordDict], _Read],
    ) -> tuple[list[_Read], list[Rejection]]:
        """Read the answers to messages, and name whose answer is missing or cannot be read."""
        matched, rejected = _match(sent, replies, self.timeout)
        good = []
        for client, reply in matched.items():
            try:
                good.append(read(client, reply.content))
            except WrongTensorsError as error:
                rejected.append(Rejection(client, str(error)))
        return good, rejected

    def _read_update(self, plan: RoundPlan, client: ClientId, content: RecordDict) -> ClientUpdate:
        key = self.settings.weighted_by_key
        examples = count_in(content, key)
        message = sent_by_client(content, self.layout, plan.messages[client])
        scalars = {name: value for name, value in message.scalars.items() if name != key}
        if self.settings.train_metrics_aggr_fn is None:
            content = RecordDict({**content.metric_records, **content.config_records})
        self.replies[client] = content
        seconds = scalars.get("train-seconds")
        return ClientUpdate(client, examples, replace(message, scalars=scalars), seconds=seconds)

    def _config(self, client: ClientId, number: int, run: str, participants: int) -> TrainConfig:
        return TrainConfig(
            round=number,
            algorithm=self.algorithm,
            client=client,
            seed=self.settings.seed,
            participants=participants,
            head=self.layout.head.layer if self.layout.head else "",
            run=run,
            memory_round=self.registry.members[client].last_round,
        )


def _match(
    sent: Mapping[ClientId, Message], replies: Iterable[Message], timeout: float
) -> tuple[dict[ClientId, Message], list[Rejection]]:
    """Return each client's first answer, and whose is missing or an error, in the order sent."""
    by_message: dict[str, Message] = {}
    for reply in replies:
        by_message.setdefault(reply.metadata.reply_to_message_id, reply)
    good, rejected = {}, []
    for client, message in sent.items():
        answer = by_message.get(message.metadata.message_id)
        if answer is None or (answer.has_error() and answer.error.code in _LATE):
            rejected.append(Rejection(client, f"it did not answer within {timeout:g} seconds"))
        elif answer.has_error():
            rejected.append(Rejection(client, _failure(answer)))
        else:
            good[client] = answer
    return good, rejected


def _failure(reply: Message) -> str:
    """Return why there is no answer, in one line."""
    if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
        return "it went offline"
    reason = " ".join((reply.error.reason or "no reason given").split())
    return f"its app failed: {reason}"
