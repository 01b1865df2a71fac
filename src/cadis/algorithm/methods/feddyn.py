"""FedDyn: dynamic regularization that aligns local optima with the global optimum.

Problem: with heterogeneous data, the optima of the local losses differ from the global optimum.

Acar et al., ICLR 2021, https://arxiv.org/abs/2111.04263
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from cadis._io import map_chunks
from cadis.algorithm.about import About, Paper
from cadis.algorithm.aggregation import average_models
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import (
    Aggregation,
    ClientOutput,
    LocalResult,
    ServerRound,
    ServerState,
    Step,
)
from cadis.types import ClientUpdate, Message, ModelState, TensorState


@dataclass(frozen=True)
class FedDyn(BaseMethod):
    """A linear and a proximal term in the local loss, and a corrected mean on the server.

    Use it if the same clients take part often, can keep a vector as large as the model, and train
    with a small learning rate.

    Client i minimizes ``L(w) - <g_i, w> + alpha / 2 * ||w - w_t||^2``, where w_t is the received
    model. It keeps g_i, an estimate of the gradient of its loss L at its last local model w_i:
    after training it sets ``g_i <- g_i - alpha * (w_i - w_t)``. The server keeps a correction h and
    sets ``h <- h - (alpha / n) * sum_S (w_i - w_t)``, where n is the number of all clients and S
    the set of participants. The new global model is ``w = mean_S(w_i) - h / alpha``. Batch-norm
    buffers are averaged without correction.

    Attributes:
        alpha: factor of the proximal term in the local loss, which keeps local models near the
            received model. The gradients that clients keep and the correction that the server
            keeps are updated with the same factor.
    """

    name: ClassVar[str] = "feddyn"
    about: ClassVar[About] = About(
        topic="drift correction",
        paper=Paper(
            title="Federated Learning Based on Dynamic Regularization",
            authors="Durmus Alp Emre Acar, Yue Zhao, Ramon Matas Navarro, Matthew Mattina, "
            "Paul N. Whatmough, Venkatesh Saligrama",
            venue="ICLR",
            year=2021,
            link="https://arxiv.org/abs/2111.04263",
        ),
        client_state="a gradient, as large as the model",
        server_state="a correction, as large as the model",
    )
    alpha: Annotated[float, Gt(0)] = 0.5

    def penalty(self, step: Step) -> Tensor | None:
        """Return -<g_i, w> + alpha / 2 * ||w - w_t||^2."""
        proximal = self.alpha / 2 * (step.parameters - step.received).square().sum(dim=-1)
        if "gradient" not in step.client_state:
            return proximal
        return proximal - (step.client_state["gradient"] * step.parameters).sum(dim=-1)

    def finish(
        self, result: LocalResult, received: Message, client_state: TensorState
    ) -> ClientOutput:
        """Update g_i <- g_i - alpha * (w_i - w_t)."""
        before = client_state.get("gradient", torch.zeros_like(result.received))
        drift = result.trained - result.received
        return ClientOutput({"gradient": before - self.alpha * drift})

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Update h, and return the mean of the models with equal weights, minus h / alpha."""
        weights = torch.full((len(updates),), 1 / len(updates), dtype=torch.float64)
        mean = average_models([update.model for update in updates], weights)
        (name, global_model), *_ = state.models.items()
        factor = self.alpha * len(updates) / server_round.num_clients

        def correct(mean: Tensor, global_parameters: Tensor, before: Tensor) -> tuple[Tensor, ...]:
            drift = mean.double() - global_parameters.double()  # mean of w_i - w_t
            correction = before - factor * drift  # h
            return (mean.double() - correction / self.alpha).to(mean.dtype), correction

        zero = torch.zeros((), dtype=torch.float64).expand(len(mean.parameters))
        before = state.tensors.get("correction", zero)
        parameters, correction = map_chunks(
            correct, mean.parameters, global_model.parameters, before
        )
        new = ModelState(parameters, mean.buffers, mean.counters)
        return Aggregation({name: new}, {"correction": correction}, weights)
