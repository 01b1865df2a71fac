"""Local optimizers: the gradient step of a client."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor


class LocalOptimizer(Protocol):
    """Interface of the optimizer that each client uses for local training.

    Derive a frozen dataclass from :class:`SGD` and override a function, or write all three
    functions.

    Example:
        Sign SGD, w <- w - lr * sign(gradient):

        >>> from dataclasses import dataclass
        >>> import torch
        >>> import cadis
        >>> from cadis.algorithm.local_optimizers import SGD
        >>> @dataclass(frozen=True)
        ... class SignSGD(SGD):
        ...     name = "sign-sgd"
        ...
        ...     def step(self, parameters, gradient, lr, state):
        ...         parameters.sub_(gradient.sign(), alpha=lr)
        >>>
        >>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> clients, test = [(x[:20], y[:20]), (x[20:40], y[20:40])], (x[40:], y[40:])
        >>> optimizer = SignSGD(lr_decay=0.9)
        >>> result = cadis.run(
        ...     torch.nn.Linear(4, 2), clients, test, rounds=2, local_optimizer=optimizer, lr=0.01
        ... )
        >>> len(result.history)
        2

    Attributes:
        name: name of the optimizer in options and files.
    """

    name: ClassVar[str]

    @property
    def is_plain(self) -> bool:
        """True if a step is ``w <- w - lr * gradient``; :meth:`step` is then not called."""

    def compute_lr(self, lr: float, round_number: int) -> float:
        """Return the learning rate of a round.

        Args:
            lr: learning rate of the first round.
            round_number: number of the round, from 1.
        """

    def step(
        self, parameters: Tensor, gradient: Tensor, lr: float, state: dict[str, Tensor]
    ) -> None:
        """Update the parameters in place. Called after each batch.

        Args:
            parameters: all trainable parameters of the model, (P,).
            gradient: gradient, (P,), of the loss plus the method's penalty term; this function may
                overwrite it.
            lr: learning rate of the round.
            state: tensors kept from step to step, by name; change them in place. The state is
                empty at the start of each round.
        """


@dataclass(frozen=True)
class SGD:
    """SGD as in ``torch.optim.SGD``.

    For each batch, v <- momentum * v + gradient + weight_decay * w, then w <- w - lr * v, for the
    parameters w of the local model. A client starts each round with v = 0, because the global model
    may have changed much since the client last took part.

    Attributes:
        momentum: momentum of a client's SGD, v <- momentum * v + gradient; 0 is no momentum.
        weight_decay: weight decay of a client's SGD, which adds weight_decay * w to the gradient.
        lr_decay: factor by which the clients' learning rate is multiplied after each round.
    """

    name: ClassVar[str] = "sgd"
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.0
    weight_decay: Annotated[float, Ge(0)] = 0.0
    lr_decay: Annotated[float, Gt(0), Le(1)] = 1.0

    @property
    def is_plain(self) -> bool:
        """True without momentum and weight decay, unless a derived class overrides ``step``."""
        return type(self).step is SGD.step and not (self.momentum or self.weight_decay)

    def compute_lr(self, lr: float, round_number: int) -> float:
        """Return lr * lr_decay ** (t - 1) in round t."""
        return lr * self.lr_decay ** (round_number - 1)

    def step(
        self, parameters: Tensor, gradient: Tensor, lr: float, state: dict[str, Tensor]
    ) -> None:
        """Update the parameters, and the velocity in ``state``."""
        if self.weight_decay:
            gradient.add_(parameters, alpha=self.weight_decay)
        if self.momentum:
            if "velocity" in state:
                gradient = state["velocity"].mul_(self.momentum).add_(gradient)
            else:
                state["velocity"] = gradient.clone()
        parameters.sub_(gradient, alpha=lr)


LOCAL_OPTIMIZERS: dict[str, type[LocalOptimizer]] = {SGD.name: SGD}
"""Built-in local optimizers by name."""
