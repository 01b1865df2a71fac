"""What a local optimiser is: how a client steps along its gradients."""

from typing import ClassVar, Protocol

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
        """The learning rate of a round, from that of the first."""

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
