"""Server optimisers: how the server steps from the aggregated model to the next global model."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from cadis._io import in_chunks
from cadis.types import TensorState


class ServerOptimizer(Protocol):
    """A step along the pseudo-gradient ``sent - aggregated``, whatever the method's weights are.

    Attributes:
        name: as users type it.
    """

    name: ClassVar[str]

    @abstractmethod
    def step(
        self, sent: Tensor, aggregated: Tensor, memory: TensorState
    ) -> tuple[Tensor, TensorState]:
        """Return the next global model and what to remember of the step.

        Args:
            sent: the parameters w_t that the round began with, (P,).
            aggregated: what the method made of the clients' models, (P,).
            memory: what was remembered of the step before; empty at first. Each model of a method
                that has several is stepped with a memory of its own.
        """


@dataclass(frozen=True)
class Plain:
    """The aggregated model is the next global one, as in the papers of our methods."""

    name: ClassVar[str] = "plain"

    def step(
        self, sent: Tensor, aggregated: Tensor, memory: TensorState
    ) -> tuple[Tensor, TensorState]:
        """w_{t+1} is the aggregated model."""
        del sent
        return aggregated, memory


@dataclass(frozen=True)
class Momentum:
    """Server momentum (FedAvgM; Hsu, Qi and Brown, 2019).

    v <- server_momentum * v + (w_t - aggregated); w <- w_t - server_lr * v. The sum of past steps
    goes on in directions in which rounds agree, and evens out those in which they differ because
    others took part.

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

        def move(sent: Tensor, aggregated: Tensor, velocity: Tensor) -> tuple[Tensor, ...]:
            start = sent.double()
            moved = (start - aggregated.double()).add_(velocity, alpha=self.server_momentum)
            return torch.sub(start, moved, alpha=self.server_lr).to(sent.dtype), moved

        velocity = memory.get("velocity", _constant(0.0, sent))
        new, velocity = in_chunks(move, sent, aggregated, velocity)
        return new, {"velocity": velocity}


class _Adaptive:
    """Adaptive federated optimisation (Reddi et al., 2021).

    With delta = aggregated - w_t, the round's mean update:
    m <- beta1 * m + (1 - beta1) * delta, from m = 0; v as each optimiser has it, from v = tau^2;
    and w <- w_t + server_lr * m / (sqrt(v) + tau). As in the paper, there is no correction of the
    bias of m and v towards their beginnings.
    """

    server_lr: float
    beta1: float
    tau: float

    @abstractmethod
    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """Return the new v, from the one before and delta^2, (P,) each."""

    def step(
        self, sent: Tensor, aggregated: Tensor, memory: TensorState
    ) -> tuple[Tensor, TensorState]:
        """One step, in float64; m and v are remembered."""

        def move(sent: Tensor, aggregated: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
            start = sent.double()
            delta = aggregated.double() - start
            m = ((1 - self.beta1) * delta).add_(m, alpha=self.beta1)
            v = self.second_moment(v, delta.square())
            new = start + self.server_lr * m / (v.sqrt() + self.tau)
            return new.to(sent.dtype), m, v

        m = memory.get("m", _constant(0.0, sent))
        v = memory.get("v", _constant(self.tau**2, sent))
        new, m, v = in_chunks(move, sent, aggregated, m, v)
        return new, {"m": m, "v": v}


@dataclass(frozen=True)
class Adam(_Adaptive):
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
        """Return the mean of squared updates, older ones counting less."""
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True)
class Yogi(Adam):
    """v <- v - (1 - beta2) * delta^2 * sign(v - delta^2): v grows slowly, so steps stay small.

    Attributes:
        server_lr: about how far a parameter moves in a round.
        beta1: which part of the mean update is kept from round to round.
        beta2: the nearer to 1, the slower the scale of steps changes.
        tau: updates far below it are not scaled up to a full step.
    """

    name: ClassVar[str] = "yogi"

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """Step towards the squared update, by a size that does not depend on v."""
        return v - (1 - self.beta2) * square * torch.sign(v - square)


@dataclass(frozen=True)
class Adagrad(_Adaptive):
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
        """Return the sum of squared updates."""
        return v + square


def _constant(value: float, like: Tensor) -> Tensor:
    """One number as a vector of float64, without the memory of one, (P,)."""
    return torch.tensor(value, dtype=torch.float64).expand(len(like))


_OURS: tuple[type[ServerOptimizer], ...] = (Plain, Momentum, Adam, Yogi, Adagrad)

SERVER_OPTIMIZERS: dict[str, type[ServerOptimizer]] = {kind.name: kind for kind in _OURS}
