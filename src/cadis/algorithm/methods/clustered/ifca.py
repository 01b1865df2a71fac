"""IFCA: the iterative federated clustering algorithm, with model averaging.

Problem: clients with contradicting data distributions cannot share one model.

Ghosh et al., NeurIPS 2020, https://arxiv.org/abs/2006.04088
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from cadis._io import check_memory
from cadis.algorithm.about import About, Paper
from cadis.algorithm.method import (
    ClientOutput,
    ClientWeights,
    LocalClient,
    ServerRound,
    ServerState,
)
from cadis.algorithm.methods.clustered.cluster_models import ClusteredMethod, PerClientTable
from cadis.types import ClientId, ClientUpdate, Message, ModelState

_COPIES = 3
"""Number of copies of each model: the state, the message to the clients, and the next state."""


@dataclass(frozen=True)
class IFCA(ClusteredMethod):
    """Several global models; each client trains the model with the lowest loss on its data.

    Use it if clients need different models and the number of clusters is known approximately.

    The server sends m models w_1, ..., w_m to every participant. Client i trains ``w_j`` with
    ``j = argmin_j loss_i(w_j)``, and FedAvg averages each model over the clients that trained it.

    Departure from the paper: there, each initial model is drawn at random. A method gets only one
    initial model, and does not know the distribution that its layers were drawn from. So the other
    initial models are this model plus Gaussian noise.

    Attributes:
        num_models: number of global models, at least the expected number of clusters.
        spread: standard deviation of the noise in the initial models, relative to the standard
            deviation of the model's parameters.
    """

    name: ClassVar[str] = "ifca"
    table: ClassVar[str] = "choices"
    about: ClassVar[About] = About(
        topic="one model per cluster",
        paper=Paper(
            title="An Efficient Framework for Clustered Federated Learning",
            authors="Avishek Ghosh, Jichan Chung, Dong Yin, Kannan Ramchandran",
            venue="NeurIPS",
            year=2020,
            link="https://arxiv.org/abs/2006.04088",
        ),
        sends="all models to every participant",
        server_state="the other models, one number per client",
    )
    num_models: Annotated[int, Ge(1)] = 5
    spread: Annotated[float, Ge(0)] = 0.5

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:
        """Return the initial model, and copies of it with random noise."""
        start = model.parameters
        check_memory(
            _COPIES * self.num_models * start.numel() * start.element_size(),
            f"IFCA with {self.num_models:,} models",
            "set num_models to a smaller number",
        )
        models = {"model-0": model}
        for index in range(1, self.num_models):
            noise = torch.randn(start.shape, generator=generator) * start.std() * self.spread
            models[f"model-{index}"] = replace(model, parameters=start + noise)
        return ServerState(models)

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        """Send all models."""
        return Message(state.models)

    def local(self, client: LocalClient) -> ClientOutput:
        """Train the model with the lowest loss; each model costs one forward pass over the data."""
        models = client.received.models
        losses = {name: client.compute_loss(model) for name, model in models.items()}
        best = min(losses, key=lambda name: losses[name])
        result = client.train(models[best])
        scalars = {"train_loss": result.loss, "received_loss": losses[best]}
        return ClientOutput(scalars=scalars, models={best: result.model})

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> ClientWeights:
        """Return the weights of FedAvg, and store the model that each client chose."""
        names = list(state.models)
        chosen = torch.tensor([names.index(update.message.model_name) for update in updates])
        choices = PerClientTable.from_tensors(state.tensors, "choices")
        choices = choices.update([update.client_id for update in updates], chosen)
        weights = super().weigh(server_round, updates, state).weights
        return ClientWeights(weights, choices.to_tensors("choices"), {"clusters": chosen})

    def model_name_for(self, client: ClientId, state: ServerState) -> str:
        """Return the model that the client chose last; at first, the first model."""
        choice = PerClientTable.from_tensors(state.tensors, "choices").get_labels([client])
        return list(state.models)[max(0, int(choice))]
