"""Classification: one output a class, cross-entropy, and top-1 accuracy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from cadis.tasks.protocol import Reduction


@dataclass(frozen=True)
class Classification:
    """Which of the classes is it?"""

    name: ClassVar[str] = "classification"
    headline: ClassVar[str] = "accuracy"
    needs_outputs: ClassVar[bool] = False

    def num_outputs(self, num_classes: int) -> int:
        """One for each class."""
        return num_classes

    def num_classes(self, num_outputs: int) -> int:
        """One for each output."""
        return num_outputs

    def loss(self, outputs: Tensor, labels: Tensor, reduction: Reduction) -> Tensor:
        """Cross-entropy."""
        return F.cross_entropy(outputs, labels, reduction=reduction)

    def predict(self, outputs: Tensor) -> Tensor:
        """The class with the largest output."""
        return outputs.argmax(dim=1)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Softmax."""
        return outputs.softmax(dim=1)

    def measures(self, outputs: Tensor, labels: Tensor) -> Mapping[str, float]:  # noqa: ARG002
        """None besides accuracy and loss."""
        return {}
