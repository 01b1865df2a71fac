"""No optimiser: the aggregated model is the next global one, as in the papers of our methods."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from cadis.types import TensorState


@dataclass(frozen=True)
class Plain:
    """The aggregated model, as it is."""

    name: ClassVar[str] = "plain"

    def step(
        self,
        sent: Tensor,  # noqa: ARG002
        aggregated: Tensor,
        memory: TensorState,
    ) -> tuple[Tensor, TensorState]:
        """w_{t+1} is the aggregated model."""
        return aggregated, memory
