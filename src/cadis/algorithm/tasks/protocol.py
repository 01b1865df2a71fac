"""What a task is: it owns the loss, the prediction and the measures."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Protocol, TypeAlias

from torch import Tensor

Reduction: TypeAlias = Literal["mean", "sum", "none"]
"""What is made of the losses of single samples."""


class Task(Protocol):
    """What the outputs of a model mean.

    Attributes:
        name: as users type it.
    """

    name: ClassVar[str]

    @property
    def headline(self) -> str:
        """The measure that decides which round is best; larger is better.

        It is "accuracy", one of :meth:`measures`, or one that is made of the confusion matrix for
        every task: "balanced_accuracy" or "f1".
        """

    @property
    def needs_outputs(self) -> bool:
        """Whether there are :meth:`measures`, which must see the outputs on the whole test set."""

    def num_outputs(self, num_classes: int) -> int:
        """How many outputs a model needs to tell so many classes apart."""

    def num_classes(self, num_outputs: int) -> int:
        """How many classes a model with so many outputs tells apart."""

    def loss(self, outputs: Tensor, labels: Tensor, reduction: Reduction) -> Tensor:
        """The loss of a batch: its outputs, (b, outputs), and its labels, (b,).

        Args:
            outputs: of the model.
            labels: the truth.
            reduction: the mean of the samples' losses, their sum, or "none": each, (b,), which
                several clients that are trained at once are told apart by.
        """

    def predict(self, outputs: Tensor) -> Tensor:
        """The class that a model says, (n,), of its outputs, (n, outputs)."""

    def measures(self, outputs: Tensor, labels: Tensor) -> Mapping[str, float]:
        """Further measures on a whole test set, besides those of the confusion matrix, by name."""
