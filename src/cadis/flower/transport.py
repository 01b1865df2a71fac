"""Transport over Flower: send messages to nodes, and read their replies."""

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
from cadis.flower.evaluation import (
    EvaluateFunction,
    aggregate_metrics,
    make_test_result,
    merge_model_metrics,
)
from cadis.flower.messages import (
    SECONDS_KEY,
    InvalidReplyError,
    check_metrics,
    read_client_reply,
    read_num_samples,
    read_seconds,
    scalars_to_config,
    to_records,
)
from cadis.flower.registry import LOGGER, ClientRegistry, wait_for_clients
from cadis.flower.strategy_settings import StrategySettings
from cadis.flower.train_config import TrainConfig
from cadis.models import Layout, WrongTensorsError
from cadis.rng import derive_generator, derive_seed
from cadis.server import AvailableClients, Rejection, RoundPlan, RunState, TestResult
from cadis.types import ClientId, ClientUpdate
from cadis.types import Message as CadisMessage

_Result = TypeVar("_Result")

_TIMEOUT_CODES = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
"""Error codes of Flower for messages without a reply in time."""


@dataclass
class FlowerTransport:
    """Transport of messages between the server and the clients on Flower's nodes.

    Attributes:
        grid: Flower's connection to the nodes.
        algorithm: the algorithm that clients run.
        settings: settings of the strategy.
        layout: names and shapes of the model's arrays.
        registry: the node of each client.
        timeout: seconds to wait for replies.
        train_config: the user's config entries for training.
        evaluate_config: the user's config entries for evaluation.
        evaluate_fn: function that evaluates a model on the server.
        result: Flower's result object, to which the metrics of evaluations are added.
        replies: contents of the valid train replies of the latest round, by client. They are stored
            without arrays, unless ``train_metrics_aggr_fn`` is set: that function may read them.
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
    _has_started: bool = field(default=False, init=False)
    _train_messages: dict[ClientId, Message] = field(default_factory=dict, init=False)
    _evaluate_messages: dict[ClientId, Message] = field(default_factory=dict, init=False)

    def available_clients(self) -> AvailableClients:
        """Return the connected clients; before the first round, wait for all ``num_clients``."""
        settings, required = self.settings, self.settings.min_available_nodes
        wanted = required if self._has_started else max(required, settings.num_clients or 0)
        self._has_started = True
        self._nodes, rejected = wait_for_clients(
            self.grid, self.registry, wanted, required, max_seconds=settings.patience
        )
        return AvailableClients(
            clients=list(self._nodes),
            num_participants=settings.count_trainers(len(self._nodes)),
            num_clients=settings.num_clients or len(self.registry.members),
            rejected=rejected,
        )

    def all_clients(self) -> Sequence[ClientId]:
        """Return all clients that have connected so far."""
        return list(self.registry.members)

    def train(self, plan: RoundPlan) -> tuple[list[ClientUpdate], list[Rejection]]:
        """Send each participant its message, wait for the replies and read them."""
        messages = self.make_train_messages(plan)
        return self.read_train_replies(
            plan, self.grid.send_and_receive(messages, timeout=self.timeout)
        )

    def make_train_messages(self, plan: RoundPlan) -> list[Message]:
        """Return the messages to the participants, with the model and the config for each."""
        available, participants = len(plan.available.clients), len(plan.messages)
        LOGGER.info(
            "[ROUND %d] configure_train: sampled %d clients (out of %d)",
            plan.number,
            participants,
            available,
        )
        contents = to_records(plan.messages.values(), self.layout, self.settings.arrayrecord_key)
        self._train_messages = {}
        for (client, message), content in zip(plan.messages.items(), contents, strict=True):
            config = self._make_config(client, plan.number, plan.state.run, participants)
            user_config = {**self.train_config, **scalars_to_config(message)}
            content[self.settings.configrecord_key] = config.to_record(user_config)
            node = self._nodes[client]
            self._train_messages[client] = Message(
                content, node, MessageType.TRAIN, ttl=self.timeout
            )
        return list(self._train_messages.values())

    def read_train_replies(
        self, plan: RoundPlan, replies: Iterable[Message]
    ) -> tuple[list[ClientUpdate], list[Rejection]]:
        """Return the updates, and the clients whose reply is missing or cannot be read."""
        self.replies = {}
        return self._read_replies(self._train_messages, replies, partial(self._read_update, plan))

    def update_state(self, state: RunState, accepted: Sequence[ClientUpdate]) -> RunState:
        """Set the last round of the accepted clients, and copy the registry to the state."""
        self.registry.record_round([update.client_id for update in accepted], state.round)
        return replace(state, members=tuple(self.registry.members.values()))

    def test(self, state: RunState, model_name_for: Callable[[ClientId], str]) -> TestResult:
        """Evaluate on clients and on the server, depending on the settings."""
        started, federated = time.perf_counter(), None
        messages = self.make_evaluate_messages(state, model_name_for, self.evaluate_config)
        if messages:
            replies = self.grid.send_and_receive(messages, timeout=self.timeout)
            federated = self.aggregate_evaluate_replies(replies)
        if federated is not None:
            self.result.evaluate_metrics_clientapp[state.round] = federated
        central = self.evaluate_on_server(state)
        client_models = [model_name_for(c) for c in self.all_clients()] if len(central) > 1 else []
        return make_test_result(central, federated, client_models, time.perf_counter() - started)

    def evaluate_on_server(self, state: RunState) -> dict[str, MetricRecord]:
        """Evaluate each model with ``evaluate_fn``, and return the metrics by model."""
        if self.evaluate_fn is None:
            return {}
        records = {}
        for name, model in state.global_models.items():
            metrics = self.evaluate_fn(state.round, ArrayRecord(self.layout.unpack(model)))
            if metrics is not None:
                records[name] = metrics
        if records:
            self.result.evaluate_metrics_serverapp[state.round] = merge_model_metrics(records)
        return records

    def make_evaluate_messages(
        self,
        state: RunState,
        model_name_for: Callable[[ClientId], str],
        user_config: Mapping[str, Any],
    ) -> list[Message]:
        """Choose connected clients, and return a message to each with the model that it uses."""
        settings = self.settings
        nodes = self.grid.get_nodes() if settings.fraction_evaluate else []
        connected, _ = self.registry.match_nodes(nodes)
        num_evaluators = settings.count_evaluators(len(connected))
        seed = derive_seed(settings.seed, "testers")
        generator = derive_generator(seed, "participants", state.round)
        round_info = SamplerRound(state.round, list(connected), num_evaluators, generator)
        chosen = Uniform().choose(round_info, {}) if num_evaluators else ()
        # to_records stores a single model called "model" under arrayrecord_key.
        messages = [CadisMessage({"model": state.global_models[model_name_for(c)]}) for c in chosen]
        contents = to_records(messages, self.layout, settings.arrayrecord_key)
        self._evaluate_messages = {}
        for client, content in zip(chosen, contents, strict=True):
            config = self._make_config(client, state.round, state.run, participants=1)
            content[settings.configrecord_key] = config.to_record(user_config)
            node = connected[client]
            self._evaluate_messages[client] = Message(
                content, node, MessageType.EVALUATE, ttl=self.timeout
            )
        return list(self._evaluate_messages.values())

    def aggregate_evaluate_replies(self, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate the metrics of valid evaluate replies, and log the others."""

        def read(_client: ClientId, content: RecordDict) -> RecordDict:
            read_num_samples(content, self.settings.weighted_by_key)
            check_metrics(content)
            return content

        contents, rejected = self._read_replies(self._evaluate_messages, replies, read)
        for rejection in rejected:
            LOGGER.warning("No evaluation of client %s: %s.", rejection.client, rejection.reason)
        return aggregate_metrics(contents, self.settings, self.settings.evaluate_metrics_aggr_fn)

    def aggregate_train_metrics(self, clients: Iterable[ClientId]) -> MetricRecord | None:
        """Aggregate the metrics in the train replies of these clients."""
        replies = [self.replies[client] for client in clients]
        return aggregate_metrics(replies, self.settings, self.settings.train_metrics_aggr_fn)

    def _read_replies(
        self,
        sent: Mapping[ClientId, Message],
        replies: Iterable[Message],
        read: Callable[[ClientId, RecordDict], _Result],
    ) -> tuple[list[_Result], list[Rejection]]:
        """Read the replies to messages; reject clients whose reply is missing or unreadable."""
        matched, rejected = _match_replies(sent, replies, self.timeout)
        results = []
        for client, reply in matched.items():
            try:
                results.append(read(client, reply.content))
            except (InvalidReplyError, WrongTensorsError) as error:
                rejected.append(Rejection(client, str(error)))
        return results, rejected

    def _read_update(self, plan: RoundPlan, client: ClientId, content: RecordDict) -> ClientUpdate:
        key = self.settings.weighted_by_key
        num_samples = read_num_samples(content, key)
        message = read_client_reply(content, self.layout, plan.messages[client])
        unused = (key, SECONDS_KEY)
        scalars = {name: value for name, value in message.scalars.items() if name not in unused}
        if self.settings.train_metrics_aggr_fn is None:
            content = RecordDict({**content.metric_records, **content.config_records})
        self.replies[client] = content
        seconds = read_seconds(message.scalars, self.timeout)
        return ClientUpdate(client, num_samples, replace(message, scalars=scalars), seconds=seconds)

    def _make_config(
        self, client: ClientId, number: int, run: str, participants: int
    ) -> TrainConfig:
        return TrainConfig(
            round=number,
            algorithm=self.algorithm,
            client=client,
            seed=self.settings.seed,
            participants=participants,
            head=self.layout.head.layer if self.layout.head else "",
            run=run,
            state_round=self.registry.members[client].last_round,
        )


def _match_replies(
    sent: Mapping[ClientId, Message], replies: Iterable[Message], timeout: float
) -> tuple[dict[ClientId, Message], list[Rejection]]:
    """Return the first reply of each client, and reject missing replies and errors."""
    by_message: dict[str, Message] = {}
    for reply in replies:
        by_message.setdefault(reply.metadata.reply_to_message_id, reply)
    matched, rejected = {}, []
    for client, message in sent.items():
        response = by_message.get(message.metadata.message_id)
        if response is None or (response.has_error() and response.error.code in _TIMEOUT_CODES):
            rejected.append(Rejection(client, f"it did not reply within {timeout:g} seconds"))
        elif response.has_error():
            rejected.append(Rejection(client, _describe_error(response)))
        else:
            matched[client] = response
    return matched, rejected


def _describe_error(reply: Message) -> str:
    """Return the error of a reply in one line."""
    if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
        return "it went offline"
    reason = " ".join((reply.error.reason or "no reason given").split())
    return f"its ClientApp failed: {reason}"
