"""Server momentum (FedAvgM; Hsu, Qi and Brown, 2019)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from cadis.core import TensorState


@dataclass(frozen=True)
class Momentum:
    """v <- server_momentum * v + (w_t - aggregated); w <- w_t - server_lr * v.

    The sum of past steps goes on in directions in which rounds agree, and evens out those in
    which they differ because others took part.

    Attributes:
        server_lr: how far the server steps; 1 without momentum is the aggregated model.
        server_momentum: which part of the server's last step is repeated; 0 is none.
    """

    name: ClassVar[str] = "momentum"
    server_lr: Annotated[float, Gt(0)] = 1.0
    server_momentum: Annotated[float, Ge(0), Lt(1)] = 0.9

    def step(
        self, sent: Tensor, aggregated: Tensor, memory: TensorState
    ) -> tuple[Tensor, TensorState]:
        """One step; the velocity v is remembered."""
        start = sent.double()
        velocity = start - aggregated.double()  # (P,)
        if "velocity" in memory:
            velocity.add_(memory["velocity"], alpha=self.server_momentum)
        new = torch.sub(start, velocity, alpha=self.server_lr)
        return new.to(sent.dtype), {"velocity": velocity}
