"""The transport of Flower: messages to nodes, and who is who among them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from cadis.algorithm import Algorithm
from cadis.algorithm.samplers import SamplerRound, Uniform
from cadis.flower.evaluation import Testing
from cadis.flower.messages import contents_of, scalars_to_config, sent_by_client
from cadis.flower.registry import LOGGER, ClientRegistry, gather
from cadis.flower.replies import count_in, match, without_arrays
from cadis.flower.strategy_settings import StrategySettings
from cadis.flower.train_config import TrainConfig
from cadis.models import Layout, WrongTensorsError
from cadis.rng import derive_seed, generator_for
from cadis.server import AvailableClients, Rejection, RoundPlan, RunState, Tested
from cadis.types import ClientId, ClientUpdate
from cadis.types import Message as CadisMessage


@dataclass
class FlowerTransport:
    """Delivers messages to Flower's nodes, each as the client that it is.

    Attributes:
        grid: Flower's connection to the nodes.
        algorithm: what clients are told to run.
        settings: how to go about it.
        layout: names and shapes of the model's arrays.
        registry: who is who.
        config: what the user wants clients to know when they train.
        timeout: seconds to wait for answers.
        testing: how the global models are tested.
        replies: by client, what the last good answers told: their content without the arrays, or
            all of it if the user's own function makes metrics of it.
    """

    grid: Grid
    algorithm: Algorithm
    settings: StrategySettings
    layout: Layout
    registry: ClientRegistry
    config: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 3600.0
    testing: Testing = field(default_factory=Testing)
    replies: dict[ClientId, RecordDict] = field(default_factory=dict, init=False)
    _nodes: Mapping[ClientId, int] = field(default_factory=dict, init=False)
    _begun: bool = field(default=False, init=False)
    _asked: Mapping[ClientId, Message] = field(default_factory=dict, init=False)
    _testers: Mapping[ClientId, Message] = field(default_factory=dict, init=False)

    def presence(self) -> AvailableClients:
        """Who is there; before the first round, everybody is waited for."""
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
        """All clients that were ever there."""
        return list(self.registry.members)

    def train(self, plan: RoundPlan) -> tuple[list[ClientUpdate], list[Rejection]]:
        """Send every participant its message, and gather what comes back."""
        messages = self.messages(plan)
        return self.answers(plan, self.grid.send_and_receive(messages, timeout=self.timeout))

    def messages(self, plan: RoundPlan) -> list[Message]:
        """What the participants are sent: each is told what to do, and as whom."""
        present = len(plan.presence.clients)
        LOGGER.info("Round %d: %d of %d clients train.", plan.number, len(plan.messages), present)
        contents = contents_of(plan.messages.values(), self.layout, self.settings.arrayrecord_key)
        self._asked = {
            client: self._message(plan, client, content)
            for client, content in zip(plan.messages, contents, strict=True)
        }
        return list(self._asked.values())

    def answers(
        self, plan: RoundPlan, replies: Iterable[Message]
    ) -> tuple[list[ClientUpdate], list[Rejection]]:
        """What the participants answered, and whose answer is missing or cannot be read."""
        matched = match(self._asked, replies, self.timeout)
        good, failed = [], list(matched.rejected)
        for client, reply in matched.good.items():
            try:
                good.append(self._answer(plan, client, reply))
            except WrongTensorsError as error:
                failed.append(Rejection(client, str(error)))
        whole = self.settings.train_metrics_aggr_fn is not None
        self.replies = {
            client: reply.content if whole else without_arrays(reply.content)
            for client, reply in matched.good.items()
        }
        return good, failed

    def remember(self, state: RunState, accepted: Sequence[ClientUpdate]) -> RunState:
        """Who is who, and whose memory of this round counts."""
        self.registry.take_part([answer.client_id for answer in accepted], state.round)
        return replace(state, members=tuple(self.registry.members.values()))

    def test(self, state: RunState, model_name_for: Callable[[ClientId], str]) -> Tested:
        """Test on the server, on clients, or both, as the user wants it."""
        return self.testing.test(self, state, model_name_for)

    def ask_to_test(
        self, state: RunState, model_name_for: Callable[[ClientId], str], config: Mapping[str, Any]
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
        self._testers = {
            client: self._test_message(state, client, present[client], content, config)
            for client, content in zip(chosen, contents, strict=True)
        }
        return list(self._testers.values())

    def take_tests(self, replies: Iterable[Message]) -> list[RecordDict]:
        """What clients answered that have tested a global model."""
        matched = match(self._testers, replies, self.timeout)
        good, rejected = [], list(matched.rejected)
        for client, message in matched.good.items():
            try:
                count_in(message.content, self.settings.weighted_by_key)
                good.append(message.content)
            except WrongTensorsError as error:
                rejected.append(Rejection(client, str(error)))
        for rejection in rejected:
            LOGGER.warning("Client %s has not tested: %s.", rejection.client, rejection.reason)
        return good

    def _answer(self, plan: RoundPlan, client: ClientId, reply: Message) -> ClientUpdate:
        examples = count_in(reply.content, self.settings.weighted_by_key)
        message = sent_by_client(reply.content, self.layout, plan.messages[client])
        scalars = {
            name: value
            for name, value in message.scalars.items()
            if name != self.settings.weighted_by_key
        }
        seconds = scalars.get("train-seconds")
        return ClientUpdate(client, examples, replace(message, scalars=scalars), seconds=seconds)

    def _message(self, plan: RoundPlan, client: ClientId, content: RecordDict) -> Message:
        told = self._train_config(plan.number, client, plan.state.run, len(plan.messages))
        config = told.config({**self.config, **scalars_to_config(plan.messages[client])})
        content[self.settings.configrecord_key] = config
        return Message(content, self._nodes[client], MessageType.TRAIN, ttl=self.timeout)

    def _train_config(
        self, number: int, client: ClientId, run: str, participants: int
    ) -> TrainConfig:
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

    def _test_message(
        self,
        state: RunState,
        client: ClientId,
        node: int,
        content: RecordDict,
        config: Mapping[str, Any],
    ) -> Message:
        told = self._train_config(state.round, client, state.run, 1)
        content[self.settings.configrecord_key] = told.config(config)
        return Message(content, node, MessageType.EVALUATE, ttl=self.timeout)
