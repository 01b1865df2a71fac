"""FedCav (Zeng et al., 2021): who is served worst by the received model counts most."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod, weighted_models
from cadis.algorithm.method import (
    Aggregation,
    BatchExtras,
    ModelOutputs,
    ServerRound,
    ServerState,
    Weighing,
)
from cadis.types import ClientUpdate, ModelState, TensorState


@dataclass(frozen=True)
class FedCav(BaseMethod):
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
    needs_scalars: ClassVar[tuple[str, ...]] = ("received_loss",)
    detection: Literal["off", "majority"] = "off"

    @property
    def needs_view(self) -> bool:
        """A view of the data is needed for the loss of the received model."""
        return True

    def prepare(self, view: ModelOutputs) -> BatchExtras:
        """The loss of the received model on the client's own training data."""
        return BatchExtras(scalars={"received_loss": view.loss})

    def weigh(
        self,
        server_round: ServerRound,  # noqa: ARG002
        updates: Sequence[ClientUpdate],
        state: ServerState,
    ) -> Weighing:
        """The softmax of the losses, each no more than their mean."""
        losses = _losses(updates)
        return Weighing(torch.softmax(losses.clamp(max=losses.mean()), dim=0), state.memory)

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """The weighted mean, or the model before if the received one is abnormal."""
        weights = self.weigh(server_round, updates, state).weights
        if self.detection == "off":
            return Aggregation(weighted_models(updates, weights)[0], state.memory, weights)
        (name, sent), *_ = state.models.items()
        losses = _losses(updates)
        if is_abnormal(losses, state.memory):
            return Aggregation({name: _before(state.memory)}, {}, weights)
        memory = {"largest_loss": losses.max(), **sent.vectors()}
        return Aggregation(weighted_models(updates, weights)[0], memory, weights)


def is_abnormal(losses: Tensor, memory: TensorState) -> bool:
    """Whether more than half of the losses are larger than any of the round before, (k,)."""
    if not memory:
        return False
    return bool((losses > memory["largest_loss"]).double().mean() > 0.5)


def _losses(updates: Sequence[ClientUpdate]) -> Tensor:
    """What the participants lose by the received model, (k,), float64."""
    return torch.tensor([u.scalars["received_loss"] for u in updates], dtype=torch.float64)


def _before(memory: TensorState) -> ModelState:
    """The model that was sent in the last round that was not abnormal."""
    return ModelState(**{name: memory[name] for name in ("parameters", "buffers", "counters")})
