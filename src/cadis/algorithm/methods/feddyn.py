"""FedDyn (Acar et al., 2021): dynamic regularisation that aligns local with global optima."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from cadis._io import in_chunks
from cadis.algorithm.about import About
from cadis.algorithm.aggregation import mean_state
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
    """Local loss L - <g_i, w> + alpha / 2 * ||w - w_t||^2, corrected means on the server.

    The client remembers g_i <- g_i - alpha (w_i - w_t); the server remembers
    h <- h - alpha / n * sum_S (w_i - w_t) over all n clients, and sends
    w = mean_S(w_i) - h / alpha. Batch-norm buffers are averaged.

    Attributes:
        alpha: strength of the regularisation.
    """

    name: ClassVar[str] = "feddyn"
    about: ClassVar[About] = About(
        kind="drift correction",
        paper="Acar et al., 2021",
        client_memory="a gradient, as large as the model",
        server_memory="a correction, as large as the model",
    )
    alpha: Annotated[float, Gt(0)] = 0.5

    def penalty(self, step: Step) -> Tensor | None:
        """-<g_i, w> + alpha / 2 * ||w - w_t||^2."""
        proximal = self.alpha / 2 * (step.parameters - step.received).square().sum(dim=-1)
        if "gradient" not in step.memory:
            return proximal
        return proximal - (step.memory["gradient"] * step.parameters).sum(dim=-1)

    def finish(self, training: LocalResult, received: Message, memory: TensorState) -> ClientOutput:
        """g_i <- g_i - alpha (w_i - w_t)."""
        before = memory.get("gradient", torch.zeros_like(training.received))
        drift = training.trained - training.received
        return ClientOutput({"gradient": before - self.alpha * drift})

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """The plain mean of the participants, corrected by h."""
        weights = torch.full((len(updates),), 1 / len(updates), dtype=torch.float64)
        mean = mean_state([update.model for update in updates], weights)
        (name, model), *_ = state.models.items()
        share = self.alpha * len(updates) / server_round.num_clients

        def corrected(mean: Tensor, sent: Tensor, before: Tensor) -> tuple[Tensor, ...]:
            drift = mean.double() - sent.double()  # the mean of w_i - w_t
            correction = before - share * drift
            return (mean.double() - correction / self.alpha).to(mean.dtype), correction

        zero = torch.zeros((), dtype=torch.float64).expand(len(mean.parameters))
        before = state.memory.get("correction", zero)
        parameters, correction = in_chunks(corrected, mean.parameters, model.parameters, before)
        new = ModelState(parameters, mean.buffers, mean.counters)
        return Aggregation({name: new}, {"correction": correction}, weights)
