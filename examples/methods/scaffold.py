"""SCAFFOLD (Karimireddy et al., 2020): control variates that correct the clients' drift.

Try it:  cadis run --method examples/methods/scaffold.py:Scaffold --lr 0.05
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from cadis.core import ClientId, ClientUpdate, Message, ModelState, TensorState
from cadis.methods import (
    Defaults,
    Finished,
    ServerRound,
    ServerState,
    Step,
    Training,
    Weighing,
)


@dataclass(frozen=True)
class Scaffold(Defaults):
    """Local steps y <- y - eta (g(y) - c_i + c); the server keeps c, every client its own c_i.

    Attributes:
        control_rate: how much of a round's change of the control variates the server takes over.
    """

    name: ClassVar[str] = "scaffold"
    needs_tensors: ClassVar[tuple[str, ...]] = ("control_change",)
    control_rate: Annotated[float, Gt(0)] = 1.0

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:
        """One model, and c = 0."""
        zero = torch.zeros_like(model.parameters)
        return ServerState(super().init(model, generator).models, {"control": zero})

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        """The model and c."""
        model = super().broadcast(server_round, state, client)
        return Message(model.models, {"control": state.memory["control"]})

    def penalty(self, step: Step) -> Tensor | None:
        """<c - c_i, y>, whose gradient is the correction c - c_i."""
        own = step.memory.get("control", torch.zeros_like(step.received))
        return (step.tensors["control"] - own) @ step.parameters

    def finish(self, training: Training, received: Message, memory: TensorState) -> Finished:
        """c_i <- c_i - c + (x - y_i) / (K eta), the paper's option II."""
        before = memory.get("control", torch.zeros_like(training.received))
        moved = (training.received - training.trained) / (training.steps * training.lr)
        after = before - received.tensors["control"] + moved
        return Finished({"control": after}, {"control_change": after - before})

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        """Everybody weighs the same; c <- c + |S| / n * mean of the changes of c_i."""
        weights = torch.full((len(updates),), 1 / len(updates), dtype=torch.float64)
        changes = torch.stack([update.message.tensors["control_change"] for update in updates])
        share = self.control_rate * len(updates) / server_round.num_clients
        return Weighing(weights, {"control": state.memory["control"] + share * changes.mean(dim=0)})
