"""FedCM (Xu et al., 2021, https://arxiv.org/abs/2106.10874): client-level momentum.

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
    """Local steps y <- y - eta (alpha g(y) + (1 - alpha) D), with the direction D of the server.

    After K steps of client i from x to y_i, (x - y_i) / (K eta) is the mean direction of its steps.
    The mean over the clients is the next D. The next model is the mean of the clients' models.

    Departure: a method can add the gradient of a penalty to a step, but cannot scale the gradient g
    of the loss. With the penalty <(1 - alpha) / alpha * D, y> a step is
    lr (g + (1 - alpha) / alpha * D) = lr / alpha * (alpha g + (1 - alpha) D). This is the step of
    the paper with eta = lr / alpha, so --lr is alpha times the learning rate of the paper.

    Attributes:
        alpha: weight of the client's own gradient in a step; 1 is FedAvg with equal weights.
    """

    name: ClassVar[str] = "fedcm"
    needs_scalars: ClassVar[tuple[str, ...]] = ("path",)
    alpha: Annotated[float, Gt(0), Le(1)] = 0.1

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:
        """Return one model, and D = 0."""
        zero = torch.zeros_like(model.parameters)
        return ServerState(super().init(model, generator).models, {"direction": zero})

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        """Send the model and D."""
        model = super().broadcast(server_round, state, client)
        return Message(model.models, {"direction": state.tensors["direction"]})

    def penalty(self, step: Step) -> Tensor | None:
        """Return <(1 - alpha) / alpha * D, y>."""
        return (1 - self.alpha) / self.alpha * (step.tensors["direction"] @ step.parameters)

    def finish(self, result: algorithm.LocalResult, *_: object) -> ClientOutput:
        """Send K eta, the sum of the step sizes; ``received`` and ``client_state`` are unused."""
        return ClientOutput(scalars={"path": result.effective_steps * result.lr / self.alpha})

    def weigh(
        self,
        server_round: ServerRound,  # noqa: ARG002
        updates: Sequence[ClientUpdate],
        state: ServerState,
    ) -> ClientWeights:
        """Return equal weights, and the mean of (x - y_i) / (K eta) as the next D."""
        weights = torch.full((len(updates),), 1 / len(updates), dtype=torch.float64)
        sent = state.models["model"].parameters.double()
        directions = [(sent - u.model.parameters.double()) / u.scalars["path"] for u in updates]
        direction = torch.stack(directions).mean(dim=0)
        return ClientWeights(weights, {"direction": direction.to(torch.float32)})
