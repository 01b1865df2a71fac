"""Classification: one output a class, cross-entropy, and top-1 accuracy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor
from torch.nn import functional as F

from cadis.algorithm.tasks.protocol import Reduction
from cadis.algorithm.tasks.ranking import one_against_rest


@dataclass(frozen=True)
class Classification:
    """Which of the classes is it?

    Attributes:
        metric: the measure that decides which round, and which method, is best.
    """

    name: ClassVar[str] = "classification"
    metric: Literal["accuracy", "balanced_accuracy", "f1", "auc"] = "accuracy"

    @property
    def headline(self) -> str:
        """The measure that decides."""
        return self.metric

    @property
    def needs_outputs(self) -> bool:
        """Only the area under the ROC curve is not in the confusion matrix."""
        return self.metric == "auc"

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

    def measures(self, outputs: Tensor, labels: Tensor) -> Mapping[str, float]:
        """Area under the ROC curve, the mean of each class against the rest."""
        return {"auc": one_against_rest(outputs, labels)}
