"""Server optimizers: they compute the next global model from the aggregated model."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from cadis._io import compute_squared_distance, map_chunks
from cadis.algorithm.about import FEDAVGM_PAPER, FEDOPT_PAPER, About
from cadis.algorithm.vectors import MIN_MODEL_NORM
from cadis.types import TensorState

_SHORT_STEP = 0.05
"""Norm of an update, relative to the norm of the model, up to which momentum is not damped."""
_MAX_STEP = 0.1
"""Largest norm of a step of ``DampedMomentum``, relative to the norm of the model."""


class ServerOptimizer(ABC):
    """Base class of the optimizers of the server, which work with every method.

    In each round, ``sent - aggregated`` takes the place of a gradient: it is the model that the
    server sent, minus the aggregated model. To write your own optimizer, derive a frozen dataclass
    from this class and define ``step``.

    Example:
        Half a step towards the aggregated model:

        >>> from dataclasses import dataclass
        >>> import torch
        >>> import cadis
        >>> from cadis.algorithm.server_optimizers import ServerOptimizer
        >>> @dataclass(frozen=True)
        ... class HalfStep(ServerOptimizer):
        ...     name = "half-step"
        ...     factor: float = 0.5
        ...
        ...     def step(self, sent, aggregated, state):
        ...         return sent + self.factor * (aggregated - sent), state
        >>>
        >>> HalfStep().step(torch.tensor([0.0]), torch.tensor([4.0]), {})
        (tensor([2.]), {})
        >>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> clients, test = [(x[:20], y[:20]), (x[20:40], y[20:40])], (x[40:], y[40:])
        >>> model = torch.nn.Linear(4, 2)
        >>> result = cadis.run(model, clients, test, rounds=2, server_optimizer=HalfStep())
        >>> len(result.history)
        2

    Attributes:
        name: name of the optimizer in options and files.
        averaging: the model that is tested, stored and returned is a moving average of the models
            that are sent to clients. This is the smallest weight of the newest of them; in round t
            its weight is at least 6 / (t + 5). With 1, the model is the newest one.
    """

    name: ClassVar[str]
    averaging: float = 1.0

    @abstractmethod
    def step(
        self, sent: Tensor, aggregated: Tensor, state: TensorState
    ) -> tuple[Tensor, TensorState]:
        """Return the parameters of the next global model. Called once per round and model.

        Args:
            sent: parameters w_t of the global model that the server sent in this round, (P,).
            aggregated: parameters of the aggregated model, (P,).
            state: tensors kept from the last round, by name; empty at first. If a method has
                several models, each model has its own state.

        Returns:
            The parameters of the next global model, (P,), and the new state.
        """


@dataclass(frozen=True)
class Plain(ServerOptimizer):
    """Use the aggregated model as the next global model."""

    name: ClassVar[str] = "plain"
    about: ClassVar[About] = About(topic="server step")

    def step(
        self, sent: Tensor, aggregated: Tensor, state: TensorState
    ) -> tuple[Tensor, TensorState]:
        """Return the aggregated model."""
        del sent
        return aggregated, state


@dataclass(frozen=True)
class Momentum(ServerOptimizer):
    """Server momentum (FedAvgM): v <- server_momentum * v + (w_t - aggregated).

    The next model is w_t - server_lr * v. Momentum adds up the directions in which rounds agree,
    and averages out the differences that come from different participants.

    Departure from the paper: the default of server_momentum is 0.5. The paper uses 0.9, which
    oscillates if few clients take part (docs/explanation/results.md).

    Attributes:
        server_lr: learning rate of the server in w <- w - server_lr * v, for the global model w.
        server_momentum: momentum of the server in v <- server_momentum * v + (w - aggregated).
    """

    name: ClassVar[str] = "momentum"
    about: ClassVar[About] = About("server step", FEDAVGM_PAPER, server_state="a velocity")
    server_lr: Annotated[float, Gt(0)] = 1.0
    server_momentum: Annotated[float, Ge(0), Lt(1)] = 0.5

    def step(
        self, sent: Tensor, aggregated: Tensor, state: TensorState
    ) -> tuple[Tensor, TensorState]:
        """Return the next model, and the velocity v as state."""

        def move(sent: Tensor, aggregated: Tensor, velocity: Tensor) -> tuple[Tensor, ...]:
            start = sent.double()
            velocity = (start - aggregated.double()).add_(velocity, alpha=self.server_momentum)
            return torch.sub(start, velocity, alpha=self.server_lr).to(sent.dtype), velocity

        velocity = state.get("velocity", _constant(0.0, sent))
        new, velocity = map_chunks(move, sent, aggregated, velocity)
        return new, {"velocity": velocity}


@dataclass(frozen=True)
class DampedMomentum(ServerOptimizer):
    """Server momentum with short steps, and a moving average of the models.

    Use it if few clients take part in a round, or if local learning rates are large. As in FedAvgM,
    v <- beta * v + (w_t - aggregated), and the next model is w_t - server_lr * v.

    - *Damping*: beta is server_momentum * min(1, 0.05 * r / ||w_t - aggregated||), where r is the
      smallest norm of the global model so far. So short updates, such as those of a small local
      learning rate, get a large momentum. With a large local learning rate, momentum would lengthen
      steps that are too long already.
    - *Limit*: v is shortened to 10% of the norm of the global model if it is longer (to 1 if the
      norm is below 10). So a round does not destroy the model if the local training of many clients
      diverges.
    - *Averaging*: clients train the newest model, but a moving average of these models is tested
      and stored. Each round changes the model in favor of its participants; in the average, these
      changes cancel out (Polyak and Juditsky: Acceleration of Stochastic Approximation by
      Averaging. SIAM Journal on Control and Optimization 1992, https://doi.org/10.1137/0330046).

    Departure from the paper: FedAvgM has a constant momentum, no limit and no averaging.

    Attributes:
        server_lr: learning rate of the server in w <- w - server_lr * v, for the global model w.
        server_momentum: momentum of the server while the update of a round is at most 5% as long as
            the global model; with an update m times as long, the momentum is divided by m.
        averaging: smallest weight of the newest model in the moving average of the models that is
            tested and stored; its weight in round t is at least 6 / (t + 5). With 1, the newest
            model is tested and stored.

    Example:
        The update has a norm of 2, which is 20% of the model's norm 10, so the step is halved:

        >>> import torch
        >>> from cadis.algorithm.server_optimizers import DampedMomentum
        >>> sent, aggregated = torch.tensor([10.0, 0.0]), torch.tensor([10.0, 2.0])
        >>> DampedMomentum().step(sent, aggregated, {})[0]
        tensor([10.,  1.])
    """

    name: ClassVar[str] = "damped-momentum"
    about: ClassVar[About] = About(
        "server step", FEDAVGM_PAPER, server_state="a velocity, and the newest model"
    )
    server_lr: Annotated[float, Gt(0)] = 1.0
    server_momentum: Annotated[float, Ge(0), Lt(1)] = 0.8
    averaging: Annotated[float, Gt(0), Le(1)] = 0.15

    def step(
        self, sent: Tensor, aggregated: Tensor, state: TensorState
    ) -> tuple[Tensor, TensorState]:
        """Return the next model, and the velocity v and the norm r as state."""
        norm = _compute_norm(sent)
        smallest = min(norm, float(state.get("norm", torch.inf)))
        length = math.sqrt(compute_squared_distance(sent, aggregated))
        short = _SHORT_STEP * smallest
        momentum = self.server_momentum * (short / length if length > short else 1)

        def accumulate(sent: Tensor, aggregated: Tensor, velocity: Tensor) -> tuple[Tensor]:
            return ((sent.double() - aggregated.double()).add_(velocity, alpha=momentum),)

        def move(sent: Tensor, velocity: Tensor) -> tuple[Tensor]:
            return (torch.sub(sent.double(), velocity, alpha=self.server_lr).to(sent.dtype),)

        velocity = state.get("velocity", _constant(0.0, sent))
        (velocity,) = map_chunks(accumulate, sent, aggregated, velocity)
        longest, step = _MAX_STEP * max(norm, MIN_MODEL_NORM), _compute_norm(velocity)
        if step > longest:
            velocity *= longest / step
        (new,) = map_chunks(move, sent, velocity)
        return new, {"velocity": velocity, "norm": torch.tensor([smallest], dtype=torch.float64)}


class _Adaptive(ServerOptimizer):
    """Base class of Adam, Yogi and Adagrad (adaptive federated optimization).

    The mean update of a round is delta = aggregated - w_t. Its moving average m starts from 0 and
    is updated as m <- beta1 * m + (1 - beta1) * delta. The second moment v starts from tau^2; each
    optimizer updates it in another way. The next model is w_t + server_lr * m / (sqrt(v) + tau). As
    in the paper, m and v have no bias correction.
    """

    about: ClassVar[About] = About("server step", FEDOPT_PAPER, server_state="two moments")
    server_lr: float
    beta1: float
    tau: float

    @abstractmethod
    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """Return the new second moment v, given the last v and delta^2, (P,) each."""

    def step(
        self, sent: Tensor, aggregated: Tensor, state: TensorState
    ) -> tuple[Tensor, TensorState]:
        """Return the next model, computed in float64, and m and v as state."""

        def move(sent: Tensor, aggregated: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
            start = sent.double()
            delta = aggregated.double() - start
            m = ((1 - self.beta1) * delta).add_(m, alpha=self.beta1)
            v = self.second_moment(v, delta.square())
            new = start + self.server_lr * m / (v.sqrt() + self.tau)
            return new.to(sent.dtype), m, v

        m = state.get("m", _constant(0.0, sent))
        v = state.get("v", _constant(self.tau**2, sent))
        new, m, v = map_chunks(move, sent, aggregated, m, v)
        return new, {"m": m, "v": v}


@dataclass(frozen=True)
class Adam(_Adaptive):
    """Adam on the server (FedAdam): v <- beta2 * v + (1 - beta2) * delta^2.

    The update is delta = aggregated - w_t, and the next model is
    w_t + server_lr * m / (sqrt(v) + tau), where m <- beta1 * m + (1 - beta1) * delta. So all
    parameters change by a similar amount.

    Attributes:
        server_lr: learning rate of the server in w <- w + server_lr * m / (sqrt(v) + tau), for the
            global model w; with the default betas, a parameter changes by at most about 2.4 times
            server_lr in a round, because m and v have no bias correction.
        beta1: decay of the mean update in m <- beta1 * m + (1 - beta1) * update.
        beta2: decay of the mean squared update in v <- beta2 * v + (1 - beta2) * update^2.
        tau: constant in the step m / (sqrt(v) + tau); larger values make the steps of parameters
            with small updates smaller.
    """

    name: ClassVar[str] = "adam"
    server_lr: Annotated[float, Gt(0)] = 0.01
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.99
    tau: Annotated[float, Gt(0)] = 1e-3

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """Return the exponential moving average of squared updates."""
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True)
class Yogi(Adam):
    """Yogi on the server (FedYogi): v <- v - (1 - beta2) * delta^2 * sign(v - delta^2).

    The rest is as in Adam. The size of the change of v does not depend on v. So if updates become
    much smaller, v decreases more slowly than in Adam, and the steps do not suddenly grow.

    Attributes:
        server_lr: learning rate of the server in w <- w + server_lr * m / (sqrt(v) + tau), for the
            global model w; with the default betas, a parameter changes by at most about 2.3 times
            server_lr in a round, because m and v have no bias correction.
        beta1: decay of the mean update in m <- beta1 * m + (1 - beta1) * update.
        beta2: v moves towards update^2 by (1 - beta2) * update^2 in each round.
        tau: constant in the step m / (sqrt(v) + tau); larger values make the steps of parameters
            with small updates smaller.
    """

    name: ClassVar[str] = "yogi"

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """Return v, moved towards the squared update by (1 - beta2) * delta^2."""
        return v - (1 - self.beta2) * square * torch.sign(v - square)


@dataclass(frozen=True)
class Adagrad(_Adaptive):
    """Adagrad on the server (FedAdagrad): v <- v + delta^2.

    The rest is as in Adam. The more a parameter has changed, the smaller its steps become.

    Attributes:
        server_lr: learning rate of the server in w <- w + server_lr * m / (sqrt(v) + tau), for the
            global model w; each parameter changes by at most about this much in a round.
        beta1: decay of the mean update in m <- beta1 * m + (1 - beta1) * update.
        tau: constant in the step m / (sqrt(v) + tau); larger values make the steps of parameters
            with small updates smaller.
    """

    name: ClassVar[str] = "adagrad"
    server_lr: Annotated[float, Gt(0)] = 0.03
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.0
    tau: Annotated[float, Gt(0)] = 1e-3

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """Return the sum of squared updates."""
        return v + square


def _compute_norm(vector: Tensor) -> float:
    return math.sqrt(compute_squared_distance(vector, vector.new_zeros(()).expand_as(vector)))


def _constant(value: float, like: Tensor) -> Tensor:
    """Return a float64 vector with one repeated value, as a view of that value, (P,)."""
    return torch.tensor(value, dtype=torch.float64).expand(len(like))


_BUILT_IN: tuple[type[ServerOptimizer], ...] = (
    Plain,
    Momentum,
    DampedMomentum,
    Adam,
    Yogi,
    Adagrad,
)

SERVER_OPTIMIZERS: dict[str, type[ServerOptimizer]] = {part.name: part for part in _BUILT_IN}
"""Built-in server optimizers by name."""
