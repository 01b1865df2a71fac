"""FedCM (Xu et al., 2021): clients step along the direction of the last round, too.

Try it:  cadis run --method examples/methods/fedcm.py:FedCM --lr 0.02
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt, Le
from torch import Tensor

from cadis import algorithm
from cadis.algorithm import BaseMethod, ClientOutput, ServerRound, ServerState, Step, Weighing
from cadis.types import ClientId, ClientUpdate, Message, ModelState


@dataclass(frozen=True)
class FedCM(BaseMethod):
    """Local steps y <- y - eta (alpha g(y) + (1 - alpha) D), with D sent by the server.

    Of K steps of client i from x to y_i comes (x - y_i) / (K eta), a mean of its steps' directions;
    the mean over the clients is the next D. The next model is the mean of the clients' models.

    What can be added to a step here is the gradient of a penalty, and nothing is taken off the
    gradient g of the loss. With the penalty <(1 - alpha) / alpha * D, y> a step is
    lr (g + (1 - alpha) / alpha * D) = lr / alpha * (alpha g + (1 - alpha) D): that of the paper
    with eta = lr / alpha. So --lr is alpha times the paper's learning rate.

    Attributes:
        alpha: which part of a step is the client's own; 1 is plain averaging.
    """

    name: ClassVar[str] = "fedcm"
    needs_scalars: ClassVar[tuple[str, ...]] = ("path",)
    alpha: Annotated[float, Gt(0), Le(1)] = 0.1

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:
        """One model, and D = 0."""
        zero = torch.zeros_like(model.parameters)
        return ServerState(super().init(model, generator).models, {"direction": zero})

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        """The model and D."""
        model = super().broadcast(server_round, state, client)
        return Message(model.models, {"direction": state.memory["direction"]})

    def penalty(self, step: Step) -> Tensor | None:
        """<(1 - alpha) / alpha * D, y>."""
        return (1 - self.alpha) / self.alpha * (step.tensors["direction"] @ step.parameters)

    def finish(self, result: algorithm.LocalResult, *_: object) -> ClientOutput:
        """Send K eta, the way that steps of length 1 would go."""
        return ClientOutput(scalars={"path": result.effective_steps * result.lr / self.alpha})

    def weigh(
        self,
        server_round: ServerRound,  # noqa: ARG002
        updates: Sequence[ClientUpdate],
        state: ServerState,
    ) -> Weighing:
        """Everybody weighs the same; D is the mean of (x - y_i) / (K eta)."""
        weights = torch.full((len(updates),), 1 / len(updates), dtype=torch.float64)
        sent = state.models["model"].parameters.double()
        moved = [(sent - u.model.parameters.double()) / u.scalars["path"] for u in updates]
        direction = torch.stack(moved).mean(dim=0)
        return Weighing(weights, {"direction": direction.to(torch.float32)})
