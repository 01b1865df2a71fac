"""SCAFFOLD (Karimireddy et al., 2020): control variates that correct the clients' drift."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import (
    ClientOutput,
    LocalResult,
    ServerRound,
    ServerState,
    Step,
    Weighing,
)
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState


@dataclass(frozen=True)
class SCAFFOLD(BaseMethod):
    """Steps corrected by control variates: what everybody's gradient is, less the client's own.

    Local steps are y <- y - eta (g(y) - c_i + c); the server keeps c, every client its own c_i.
    Afterwards c_i <- c_i - c + (x - y_i) / (K eta), the paper's option II, and
    c <- c + |S| / n * mean of the changes of c_i. Everybody weighs the same. The paper's global
    step size eta_g is that of a server optimiser, 1 without one.

    Departure: with local momentum, K is the number of plain steps that would go as far, so that
    c_i is still a mean of gradients.
    """

    name: ClassVar[str] = "scaffold"
    needs_tensors: ClassVar[tuple[str, ...]] = ("control_change",)
    about: ClassVar[About] = About(
        kind="drift correction",
        paper="Karimireddy et al., 2020",
        sends="a control variate, as large as the model, each way",
        client_memory="a control variate",
        server_memory="a control variate",
    )

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
        return ((step.tensors["control"] - own) * step.parameters).sum(dim=-1)

    def finish(self, training: LocalResult, received: Message, memory: TensorState) -> ClientOutput:
        """c_i <- c_i - c + (x - y_i) / (K eta)."""
        before = memory.get("control", torch.zeros_like(training.received))
        path = training.effective_steps * training.lr
        after = (training.received - training.trained) / path
        after = after + before - received.tensors["control"]
        return ClientOutput({"control": after}, {"control_change": after - before})

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        """Equal weights; c <- c + (sum of the changes of c_i) / n."""
        weights = torch.full((len(updates),), 1 / len(updates), dtype=torch.float64)
        control = state.memory["control"].clone()
        for update in updates:
            change = update.message.tensors["control_change"]
            control.add_(change, alpha=1 / server_round.num_clients)
        return Weighing(weights, {"control": control})
