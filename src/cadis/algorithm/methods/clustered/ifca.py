"""IFCA (Ghosh et al., 2020): several global models; every client trains the one that fits it best.

Its paper calls it the iterative federated clustering algorithm, in the variant of model averaging.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from cadis.algorithm.about import About
from cadis.algorithm.method import ClientOutput, LocalClient, ServerRound, ServerState, Weighing
from cadis.algorithm.methods.clustered.cluster_models import FindsClusters, PerClientTable
from cadis.types import ClientId, ClientUpdate, Message, ModelState


@dataclass(frozen=True)
class IFCA(FindsClusters):
    """Sends all models; a client trains the one with the lowest loss on its own data.

    Departure: the paper begins with models at random. A method is given one initial model and does
    not know how its layers are drawn, so the others are that one with noise.

    Attributes:
        num_models: m, how many global models there are: at least as many as clusters are expected.
            A model too many is not chosen or shared by nobody; a cluster too many shares a model.
        spread: how far the initial models are apart, in deviations of the model's own parameters.
    """

    name: ClassVar[str] = "ifca"
    table: ClassVar[str] = "choices"
    about: ClassVar[About] = About(
        kind="one model per cluster",
        paper="Ghosh et al., 2020",
        sends="all models to every participant",
        server_memory="the other models, a number a client",
    )
    num_models: Annotated[int, Ge(1)] = 5
    spread: Annotated[float, Ge(0)] = 0.5

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:
        """The initial model, and others at random around it."""
        start = model.parameters
        models = {"model-0": model}
        for number in range(1, self.num_models):
            noise = torch.randn(start.shape, generator=generator) * start.std() * self.spread
            models[f"model-{number}"] = replace(model, parameters=start + noise)
        return ServerState(models)

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        """All models."""
        return Message(state.models)

    def local(self, client: LocalClient) -> ClientOutput:
        """Choose the model with the lowest loss, and train it: a pass over the data for each."""
        models = client.received.models
        losses = {name: client.loss(model) for name, model in models.items()}
        best = min(losses, key=lambda name: losses[name])
        training = client.train(models[best])
        scalars = {"train_loss": training.loss, "received_loss": losses[best]}
        return ClientOutput(scalars=scalars, models={best: training.model})

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        """As FedAvg among those who trained the same model; remembers who chose which."""
        names = list(state.models)
        chosen = torch.tensor([names.index(update.message.model_name) for update in updates])
        choices = PerClientTable.from_tensors(state.memory, "choices")
        choices = choices.put([update.client_id for update in updates], chosen)
        weights = super().weigh(server_round, updates, state).weights
        return Weighing(weights, choices.to_tensors("choices"), {"clusters": chosen})

    def model_name_for(self, client: ClientId, state: ServerState) -> str:
        """The model that a client chose last; the first, if it was never asked."""
        choice = PerClientTable.from_tensors(state.memory, "choices").labels([client])
        return list(state.models)[max(0, int(choice))]
