"""Local optimisers: how a client steps along its gradients."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor


class LocalOptimizer(Protocol):
    """How a client steps.

    Attributes:
        name: as users type it.
    """

    name: ClassVar[str]

    @property
    def is_plain(self) -> bool:
        """Whether a step is just ``w - lr * gradient``; it is then taken without :meth:`step`."""

    def lr_in_round(self, lr: float, number: int) -> float:
        """Return the learning rate of a round, from that of the first."""

    def step(
        self, parameters: Tensor, gradient: Tensor, lr: float, memory: dict[str, Tensor]
    ) -> None:
        """Change the parameters in place.

        Args:
            parameters: all trained parameters of the model, (P,).
            gradient: of the loss with its penalty, (P,); it may be overwritten.
            lr: the learning rate.
            memory: what is remembered from step to step; empty when local training begins, and
                changed in place.
        """


@dataclass(frozen=True)
class SGD:
    """v <- momentum * v + (gradient + weight_decay * w); w <- w - lr * v. As in torch.optim.SGD.

    A client begins every round with v = 0: it may not take part for long, and the global model
    has moved meanwhile.

    Attributes:
        momentum: which part of the last step is repeated; 0 is none.
        weight_decay: how strongly parameters are drawn to zero; 0 is not at all.
        lr_decay: what the learning rate is multiplied by from round to round; 1 keeps it.
    """

    name: ClassVar[str] = "sgd"
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.0
    weight_decay: Annotated[float, Ge(0)] = 0.0
    lr_decay: Annotated[float, Gt(0), Le(1)] = 1.0

    @property
    def is_plain(self) -> bool:
        """Whether a step is just ``w - lr * gradient``; one of a class derived from this is not."""
        return type(self).step is SGD.step and not (self.momentum or self.weight_decay)

    def lr_in_round(self, lr: float, number: int) -> float:
        """Lr * lr_decay ** (t - 1)."""
        return lr * self.lr_decay ** (number - 1)

    def step(
        self, parameters: Tensor, gradient: Tensor, lr: float, memory: dict[str, Tensor]
    ) -> None:
        """One step."""
        if self.weight_decay:
            gradient.add_(parameters, alpha=self.weight_decay)
        if self.momentum:
            if "velocity" in memory:
                gradient = memory["velocity"].mul_(self.momentum).add_(gradient)
            else:
                memory["velocity"] = gradient.clone()
        parameters.sub_(gradient, alpha=lr)


LOCAL_OPTIMIZERS: dict[str, type[LocalOptimizer]] = {SGD.name: SGD}
