"""IFCA (Ghosh et al., 2020): several global models; every client trains the one that fits it best.

Try it:  cadis run --method examples/methods/ifca.py:IFCA --num-models 5
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from cadis.core import ClientId, ClientUpdate, Message, ModelState, ids_from_tensor, ids_to_tensor
from cadis.methods import Defaults, LocalClient, Reply, ServerRound, ServerState, Weighing


@dataclass(frozen=True)
class IFCA(Defaults):
    """The server sends all models; a client trains that with the lowest loss on its own data.

    Attributes:
        num_models: m, how many global models there are.
        spread: how far the initial models are apart, in deviations of the model's own parameters.
    """

    name: ClassVar[str] = "ifca"
    num_models: Annotated[int, Ge(1)] = 2
    spread: Annotated[float, Ge(0)] = 0.5

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:
        """The initial model, and others at random around it."""
        start = model.parameters
        models = {"model-0": model}
        for number in range(1, self.num_models):
            noise = torch.randn(start.shape, generator=generator) * start.std() * self.spread
            models[f"model-{number}"] = replace(model, parameters=start + noise)
        return ServerState(models)

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:  # noqa: ARG002
        """All models."""
        return Message(state.models)

    def local(self, client: LocalClient) -> Reply:
        """Choose the model with the lowest loss, and train it."""
        models = client.received.models
        losses = {name: client.loss(model) for name, model in models.items()}
        best = min(losses, key=lambda name: losses[name])
        training = client.train(models[best])
        scalars = {"train_loss": training.loss, "received_loss": losses[best]}
        return Reply(Message({best: training.model}, scalars=scalars), {})

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        """As FedAvg among those who trained the same model; remembers who chose which."""
        names = list(state.models)
        chosen = {update.client_id: names.index(update.message.model_name) for update in updates}
        known = self._choices(state) | chosen
        memory = {
            "clients": ids_to_tensor(list(known)),
            "choices": torch.tensor(list(known.values())),
        }
        report = {"clusters": torch.tensor(list(chosen.values()))}
        return Weighing(super().weigh(server_round, updates, state).weights, memory, report)

    def model_of(self, client: ClientId, state: ServerState) -> str:
        """The model that a client chose last; the first, if it was never asked."""
        return list(state.models)[self._choices(state).get(client, 0)]

    def _choices(self, state: ServerState) -> dict[ClientId, int]:
        if not state.memory:
            return {}
        clients = ids_from_tensor(state.memory["clients"])
        return dict(zip(clients, state.memory["choices"].tolist(), strict=True))
