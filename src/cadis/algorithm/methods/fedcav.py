"""FedCav: contribution-aware weights, computed from the loss of the received model.

Problem: with heterogeneous data, clients whose data the global model fits badly have too little
influence.

Zeng et al., ICPP 2021, https://openreview.net/forum?id=b3rEWJMGe1t
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from cadis.algorithm.about import About, Paper
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import (
    Aggregation,
    BatchExtras,
    ClientWeights,
    ModelOutputs,
    ServerRound,
    ServerState,
)
from cadis.types import ClientUpdate, ModelState

LOSS_RANGE = (0.0, 1e30)
"""Range of a loss that clients report; sums and single precision do not overflow."""


class ReceivedLossMethod(BaseMethod):
    """Base class of methods whose clients send the loss of the received model on their data."""

    needs_scalars: ClassVar[tuple[str, ...]] = ("received_loss",)
    scalar_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"received_loss": LOSS_RANGE}

    @property
    def needs_model_outputs(self) -> bool:
        """True, because clients compute the loss of the received model."""
        return True

    def prepare(self, outputs: ModelOutputs) -> BatchExtras:
        """Send the loss of the received model on the client's training data."""
        return BatchExtras(scalars={"received_loss": outputs.loss})


@dataclass(frozen=True)
class FedCav(ReceivedLossMethod):
    """Larger weights for clients on whose data the received model has a high loss.

    Use it if the global model fits some clients badly. It does not use the number of samples.

    The weights are ``softmax(min(l_i, mean_j l_j))``, where l_i is the loss of the received model
    on the data of client i. Losses above the mean of the round are clipped, so that a client gains
    nothing if it sends a larger loss. With ``detection``, the server checks the received model: the
    model is abnormal if more than half of the participants send a loss above the largest loss of
    the round before. Then the server discards the updates, and sends the previous model again.

    Departure from the paper: detection is optional, and off by default as in the authors' code. The
    round after an abnormal round is never abnormal. Otherwise the same model could be sent forever,
    if the next participants also have larger losses with the old model. No weight is larger than
    twice an equal share (``largest_share``): although losses are clipped at their mean, a client
    that reports a huge loss raises the mean, and would get a weight near 1.

    Attributes:
        detection: "majority" returns to the previous global model if the losses of most
            participants are unusually large; "off" never does.
    """

    name: ClassVar[str] = "fedcav"
    about: ClassVar[About] = About(
        topic="aggregation weights",
        paper=Paper(
            title="FedCav: Contribution-aware Model Aggregation on Distributed Heterogeneous Data "
            "in Federated Learning",
            authors="Hui Zeng, Tongqing Zhou, Yeting Guo, Zhiping Cai, Fang Liu",
            venue="ICPP",
            year=2021,
            link="https://openreview.net/forum?id=b3rEWJMGe1t",
        ),
        sends="the received model's loss",
        server_state="with detection, the model of the round before",
    )
    detection: Literal["off", "majority"] = "off"

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> ClientWeights:
        """Return the softmax of the losses, which are clipped at their mean."""
        values = [update.scalars["received_loss"] for update in updates]
        losses = torch.tensor(values, dtype=torch.float64)
        weights = torch.softmax(losses.clamp(max=losses.mean()), dim=0)
        if self.detection == "off":
            return ClientWeights(weights, state.tensors)
        (model,) = state.models.values()
        return ClientWeights(weights, {"largest_loss": losses.max(), **model.vectors()})

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Return the weighted mean, or the previous model if the received one is abnormal."""
        aggregation = super().aggregate(server_round, updates, state)
        if self.detection == "off" or not state.tensors:
            return aggregation
        previous = dict(state.tensors)
        largest_loss = float(previous.pop("largest_loss"))
        exceeds = [update.scalars["received_loss"] > largest_loss for update in updates]
        if sum(exceeds) <= len(exceeds) / 2:
            return aggregation
        (name,) = aggregation.models
        return replace(aggregation, models={name: ModelState(**previous)}, tensors={})
