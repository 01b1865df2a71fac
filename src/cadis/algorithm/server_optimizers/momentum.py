"""Server momentum (FedAvgM; Hsu, Qi and Brown, 2019)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from cadis._io import in_chunks
from cadis.types import TensorState


@dataclass(frozen=True)
class Momentum:
    """v <- server_momentum * v + (w_t - aggregated); w <- w_t - server_lr * v.

    The sum of past steps goes on in directions in which rounds agree, and evens out those in
    which they differ because others took part.

    Attributes:
        server_lr: how far the server steps; 1 without momentum is the aggregated model.
        server_momentum: which part of the server's last step is repeated; 0 is none. The paper of
            FedAvgM has 0.9, which oscillates where few clients take part (docs/results.md).
    """

    name: ClassVar[str] = "momentum"
    server_lr: Annotated[float, Gt(0)] = 1.0
    server_momentum: Annotated[float, Ge(0), Lt(1)] = 0.5

    def step(
        self, sent: Tensor, aggregated: Tensor, memory: TensorState
    ) -> tuple[Tensor, TensorState]:
        """One step; the velocity v is remembered."""

        def stepped(sent: Tensor, aggregated: Tensor, velocity: Tensor) -> tuple[Tensor, ...]:
            start = sent.double()
            moved = (start - aggregated.double()).add_(velocity, alpha=self.server_momentum)
            return torch.sub(start, moved, alpha=self.server_lr).to(sent.dtype), moved

        zero = torch.zeros((), dtype=torch.float64).expand(len(sent))
        new, velocity = in_chunks(stepped, sent, aggregated, memory.get("velocity", zero))
        return new, {"velocity": velocity}
