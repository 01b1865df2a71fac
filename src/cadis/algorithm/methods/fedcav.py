"""FedCav (Zeng et al., 2021): who is served worst by the received model counts most."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import (
    Aggregation,
    BatchExtras,
    ModelOutputs,
    ServerRound,
    ServerState,
    Weighing,
)
from cadis.types import ClientUpdate, ModelState


class SendsReceivedLoss(BaseMethod):
    """A method whose clients send the loss of the received model on their training data."""

    needs_scalars: ClassVar[tuple[str, ...]] = ("received_loss",)

    @property
    def needs_view(self) -> bool:
        """A view of the data is needed for the loss of the received model."""
        return True

    def prepare(self, view: ModelOutputs) -> BatchExtras:
        """The loss of the received model on the client's own training data."""
        return BatchExtras(scalars={"received_loss": view.loss})


@dataclass(frozen=True)
class FedCav(SendsReceivedLoss):
    """Weights by the softmax of the received model's loss on the client's own data.

    A loss above the mean of the round counts as the mean, so that nobody gains by saying more.
    With ``detection`` the received model is abnormal if more than half of the participants lose
    more by it than anybody lost by the model before; then their updates are dropped, and the model
    before is sent again.

    Departure: detection is a choice, and off by default as in the authors' own code. The round that
    follows an abnormal one is never abnormal: where others take part who lose more by the model
    before as well, it would be sent again for ever.

    Attributes:
        detection: what to do about abnormal models: nothing, or take back what the majority finds
            abnormal.
    """

    name: ClassVar[str] = "fedcav"
    about: ClassVar[About] = About(
        kind="weights on the server",
        paper="Zeng et al., 2021",
        sends="the received model's loss",
        server_memory="the model before, with detection",
    )
    detection: Literal["off", "majority"] = "off"

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        """The softmax of the losses, each no more than their mean."""
        told = [update.scalars["received_loss"] for update in updates]
        losses = torch.tensor(told, dtype=torch.float64)
        weights = torch.softmax(losses.clamp(max=losses.mean()), dim=0)
        if self.detection == "off":
            return Weighing(weights, state.memory)
        (sent,) = state.models.values()
        return Weighing(weights, {"largest_loss": losses.max(), **sent.vectors()})

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """The weighted mean, or the model before if the received one is abnormal."""
        made = super().aggregate(server_round, updates, state)
        if self.detection == "off" or not state.memory:
            return made
        before = dict(state.memory)
        largest = float(before.pop("largest_loss"))
        larger = [update.scalars["received_loss"] > largest for update in updates]
        if sum(larger) <= len(larger) / 2:
            return made
        (name,) = made.models
        return replace(made, models={name: ModelState(**before)}, memory={})
