"""Gaussian noise on updates, added by the clients together, as in DP-FedAvg."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Gt

from cadis.algorithm.transforms.protocol import TransformRound
from cadis.algorithm.transforms.update import pairs, replaced
from cadis.errors import CadisError
from cadis.types import Message


@dataclass(frozen=True)
class Noise:
    """Every one of k participants adds noise of deviation z * bound / sqrt(k) to its update.

    The sum of a round's updates then carries noise of deviation z * bound on every number
    (DP-FedAvg; McMahan et al., 2018), the bound being the norm that updates are clipped to.

    What this does not do: z is a noise multiplier and no epsilon, and nothing here accounts for
    the privacy that rounds use up. A single update carries only its share of the noise, so the
    server, which sees it, must be trusted with it. If participants fail, the sum carries less
    noise. Weights that differ between clients make the largest of them less protected than z
    says. Scalars, integer counters and the number of samples are sent as they are.
    Batch norm's statistics are noised as parameters are, and a variance may become negative:
    choose a model without batch norm.

    Attributes:
        noise: the noise multiplier z: how large the noise on the sum of a round's updates is,
            as a multiple of the limit of a single update.
    """

    name: ClassVar[str] = "noise"
    side: ClassVar[Literal["client", "server"]] = "client"
    needs_bound: ClassVar[bool] = True
    noise: Annotated[float, Gt(0)] = 0.1

    @property
    def bound(self) -> float | None:
        """Noise has no limit."""
        return None

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """The update with noise on each of its numbers."""
        if server_round.bound is None:
            raise CadisError("Noise needs updates of limited norm; put clip right before it.")
        deviation = self.noise * server_round.bound / server_round.participants**0.5
        noisy = {}
        for path, (vector, _) in pairs(update, server_round.received).items():
            draw = torch.randn(
                vector.shape, generator=server_round.generator, dtype=torch.float64
            ).to(vector.device)
            noisy[path] = draw.mul_(deviation).add_(vector).to(vector.dtype)
        return replaced(update, noisy)
