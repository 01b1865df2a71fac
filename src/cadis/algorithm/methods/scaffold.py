"""SCAFFOLD: control variates against client drift.

Problem: with heterogeneous data, the local steps of a client drift towards its own optimum.

Karimireddy et al., ICML 2020, https://arxiv.org/abs/1910.06378
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import (
    ClientOutput,
    ClientWeights,
    LocalResult,
    ServerRound,
    ServerState,
    Step,
)
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState


@dataclass(frozen=True)
class SCAFFOLD(BaseMethod):
    """Local steps corrected with control variates, and equal weights of the clients.

    Use it if the same clients take part often and can keep a vector as large as the model.

    A local step is ``y <- y - eta * (g(y) - c_i + c)``, where g is the gradient and eta the
    learning rate. The server keeps the control variate c, and client i keeps c_i. After training,
    the client sets ``c_i <- c_i - c + (x - y_i) / (K * eta)`` (option II of the paper), where x is
    the received model, y_i the trained model, and K the number of local steps. The server sets
    ``c <- c + (1 / n) * sum_S (change of c_i)``, where n is the number of all clients and S the set
    of participants. The global step size eta_g of the paper is 1; to change it, choose a server
    optimizer with a learning rate.

    Departure from the paper: with local momentum, K is the number of plain SGD steps that would
    move as far, for a constant gradient, as the steps with momentum, so that c_i is still a mean of
    gradients.
    """

    name: ClassVar[str] = "scaffold"
    needs_tensors: ClassVar[tuple[str, ...]] = ("control_change",)
    about: ClassVar[About] = About(
        topic="drift correction",
        paper=Paper(
            title="SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
            authors="Sai Praneeth Karimireddy, Satyen Kale, Mehryar Mohri, Sashank Reddi, "
            "Sebastian Stich, Ananda Theertha Suresh",
            venue="ICML",
            year=2020,
            link="https://arxiv.org/abs/1910.06378",
        ),
        sends="a control variate, as large as the model, in both directions",
        client_state="a control variate",
        server_state="a control variate",
    )

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:
        """Return the initial model and c = 0."""
        zero = torch.zeros_like(model.parameters)
        return ServerState(super().init(model, generator).models, {"control": zero})

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        """Send the model and c."""
        model = super().broadcast(server_round, state, client)
        return Message(model.models, {"control": state.tensors["control"]})

    def penalty(self, step: Step) -> Tensor | None:
        """Return <c - c_i, y>, whose gradient is the correction c - c_i."""
        control = step.client_state.get("control", torch.zeros_like(step.received))  # c_i
        return ((step.tensors["control"] - control) * step.parameters).sum(dim=-1)

    def finish(
        self, result: LocalResult, received: Message, client_state: TensorState
    ) -> ClientOutput:
        """Update c_i <- c_i - c + (x - y_i) / (K * eta), and send its change."""
        before = client_state.get("control", torch.zeros_like(result.received))
        after = (result.received - result.trained) / (result.effective_steps * result.lr)
        after = after + before - received.tensors["control"]
        return ClientOutput({"control": after}, {"control_change": after - before})

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> ClientWeights:
        """Return equal weights, and update c <- c + (sum of the changes of c_i) / n."""
        weights = torch.full((len(updates),), 1 / len(updates), dtype=torch.float64)
        control = state.tensors["control"].clone()
        for update in updates:
            change = update.message.tensors["control_change"]
            control.add_(change, alpha=1 / server_round.num_clients)
        return ClientWeights(weights, {"control": control})
