"""What a server optimiser is: it goes from the aggregated model to the next global one."""

from typing import ClassVar, Protocol

from torch import Tensor

from cadis.types import TensorState


class ServerOptimizer(Protocol):
    """A step along the pseudo-gradient ``sent - aggregated``, whatever the method's weights are.

    Attributes:
        name: as users type it.
    """

    name: ClassVar[str]

    def step(
        self, sent: Tensor, aggregated: Tensor, memory: TensorState
    ) -> tuple[Tensor, TensorState]:
        """The next global model and what to remember of the step.

        Args:
            sent: the parameters w_t that the round began with, (P,).
            aggregated: what the method made of the clients' models, (P,).
            memory: what was remembered of the step before; empty at first. Each model of a method
                that has several is stepped with a memory of its own.
        """
