"""FedCM (Xu et al., 2021, https://arxiv.org/abs/2106.10874): momentum in the steps of clients.

An example of a method that sends a tensor to clients and gets a scalar from them.

Run it:  cadis run --method examples/methods/fedcm.py:FedCM --lr 0.02
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt, Le
from torch import Tensor

from cadis import algorithm
from cadis.algorithm import BaseMethod, ClientOutput, ClientWeights, ServerRound, ServerState, Step
from cadis.types import ClientId, ClientUpdate, Message, ModelState


@dataclass(frozen=True)
class FedCM(BaseMethod):
    """Add the mean direction D of the last round to each local step.

    A local step is y <- y - eta * (alpha * g(y) + (1 - alpha) * D), where y is the local model and
    g(y) the gradient of its loss. The server sends D. Client i starts from the received model x and
    has y_i after K steps, so (x - y_i) / (K * eta) is the mean direction of its steps. The mean of
    these directions over the clients is the next D. The next global model is the mean of the y_i.

    Departure from the paper: a penalty adds to the gradient g, but cannot multiply g by alpha. With
    the penalty (1 - alpha) / alpha * <D, y>, a local step is
    y <- y - lr * (g + (1 - alpha) / alpha * D) = y - lr / alpha * (alpha * g + (1 - alpha) * D).
    This is the step of the paper with eta = lr / alpha, so set --lr to alpha times the learning
    rate of the paper.

    Attributes:
        alpha: weight of the client's gradient in a local step, alpha * g + (1 - alpha) * D, where D
            is the mean direction of the last round; 1 is FedAvg with equal weights.
    """

    name: ClassVar[str] = "fedcm"
    needs_scalars: ClassVar[tuple[str, ...]] = ("path",)
    alpha: Annotated[float, Gt(0), Le(1)] = 0.1

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:
        """Return the initial model, and D = 0."""
        zero = torch.zeros_like(model.parameters)
        return ServerState(super().init(model, generator).models, {"direction": zero})

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        """Send the model and D."""
        model = super().broadcast(server_round, state, client)
        return Message(model.models, {"direction": state.tensors["direction"]})

    def penalty(self, step: Step) -> Tensor | None:
        """Return (1 - alpha) / alpha * <D, y>."""
        return (1 - self.alpha) / self.alpha * (step.tensors["direction"] @ step.parameters)

    def finish(self, result: algorithm.LocalResult, *_: object) -> ClientOutput:
        """Send K * eta; the arguments ``received`` and ``client_state`` are not used."""
        return ClientOutput(scalars={"path": result.effective_steps * result.lr / self.alpha})

    def weigh(
        self,
        server_round: ServerRound,  # noqa: ARG002
        updates: Sequence[ClientUpdate],
        state: ServerState,
    ) -> ClientWeights:
        """Return equal weights, and the mean of (x - y_i) / (K * eta) as the next D."""
        weights = torch.full((len(updates),), 1 / len(updates), dtype=torch.float64)
        sent = state.models["model"].parameters.double()
        directions = [
            (sent - update.model.parameters.double()) / update.scalars["path"] for update in updates
        ]
        direction = torch.stack(directions).mean(dim=0)
        return ClientWeights(weights, {"direction": direction.to(torch.float32)})
