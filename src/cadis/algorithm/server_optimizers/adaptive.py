"""Adaptive federated optimisation (Reddi et al., 2021): Adam, Yogi and Adagrad on the server.

With delta = aggregated - w_t, the round's mean update:
m <- beta1 * m + (1 - beta1) * delta, from m = 0; v as each optimiser has it, from v = tau^2; and
w <- w_t + server_lr * m / (sqrt(v) + tau). As in the paper, there is no correction of the bias of
m and v towards their beginnings.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from cadis._io import in_chunks
from cadis.types import TensorState


@dataclass(frozen=True)
class Adam:
    """v <- beta2 * v + (1 - beta2) * delta^2: steps of like size for every parameter.

    Attributes:
        server_lr: about how far a parameter moves in a round.
        beta1: which part of the mean update is kept from round to round.
        beta2: which part of the mean squared update is kept from round to round.
        tau: updates far below it are not scaled up to a full step.
    """

    name: ClassVar[str] = "adam"
    server_lr: Annotated[float, Gt(0)] = 0.01
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.99
    tau: Annotated[float, Gt(0)] = 1e-3

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """The mean of squared updates, older ones counting less."""
        return self.beta2 * v + (1 - self.beta2) * square

    def step(
        self, sent: Tensor, aggregated: Tensor, memory: TensorState
    ) -> tuple[Tensor, TensorState]:
        """One step; m and v are remembered."""
        return _step(self, sent, aggregated, memory)


@dataclass(frozen=True)
class Yogi:
    """v <- v - (1 - beta2) * delta^2 * sign(v - delta^2): v grows slowly, so steps stay small.

    Attributes:
        server_lr: about how far a parameter moves in a round.
        beta1: which part of the mean update is kept from round to round.
        beta2: the nearer to 1, the slower the scale of steps changes.
        tau: updates far below it are not scaled up to a full step.
    """

    name: ClassVar[str] = "yogi"
    server_lr: Annotated[float, Gt(0)] = 0.01
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.99
    tau: Annotated[float, Gt(0)] = 1e-3

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """A step towards the squared update, of a size that v has no part in."""
        return v - (1 - self.beta2) * square * torch.sign(v - square)

    def step(
        self, sent: Tensor, aggregated: Tensor, memory: TensorState
    ) -> tuple[Tensor, TensorState]:
        """One step; m and v are remembered."""
        return _step(self, sent, aggregated, memory)


@dataclass(frozen=True)
class Adagrad:
    """v <- v + delta^2: parameters that have moved much take ever smaller steps.

    Attributes:
        server_lr: about how far a parameter moves in the first round.
        beta1: which part of the mean update is kept from round to round; usually none.
        tau: updates far below it are not scaled up to a full step.
    """

    name: ClassVar[str] = "adagrad"
    server_lr: Annotated[float, Gt(0)] = 0.03
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.0
    tau: Annotated[float, Gt(0)] = 1e-3

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """The sum of squared updates."""
        return v + square

    def step(
        self, sent: Tensor, aggregated: Tensor, memory: TensorState
    ) -> tuple[Tensor, TensorState]:
        """One step; m and v are remembered."""
        return _step(self, sent, aggregated, memory)


class _Adaptive(Protocol):
    """What the three have in common."""

    @property
    def server_lr(self) -> float: ...
    @property
    def beta1(self) -> float: ...
    @property
    def tau(self) -> float: ...
    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """The new v, from the one before and delta^2, (P,) each."""


def _step(
    optimizer: _Adaptive, sent: Tensor, aggregated: Tensor, memory: TensorState
) -> tuple[Tensor, TensorState]:
    """The step of all three, in float64."""

    def step(sent: Tensor, aggregated: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        start = sent.double()
        delta = aggregated.double() - start
        m = ((1 - optimizer.beta1) * delta).add_(m, alpha=optimizer.beta1)
        v = optimizer.second_moment(v, delta.square())
        new = start + optimizer.server_lr * m / (v.sqrt() + optimizer.tau)
        return new.to(sent.dtype), m, v

    zero, first = (
        torch.tensor(value, dtype=torch.float64).expand(len(sent))
        for value in (0.0, optimizer.tau**2)
    )
    before = memory.get("m", zero), memory.get("v", first)
    new, m, v = in_chunks(step, sent, aggregated, *before)
    return new, {"m": m, "v": v}
