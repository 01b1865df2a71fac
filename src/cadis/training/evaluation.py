"""How good is a model on examples that nobody trained on?"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cadis.core import CadisError
from cadis.data import Examples
from cadis.models import FlatModel
from cadis.training.local import view_of


@dataclass(frozen=True)
class Evaluation:
    """A model's confusion matrix and summed loss; those of parts of a test set add up.

    Attributes:
        confusion: examples by true (row) and predicted class, (classes, classes), int64. Where a
            model's outputs are not numbers it has predicted nothing, which counts as the class
            after the true one: it is wrong.
        total_loss: cross-entropy, summed.
    """

    confusion: Tensor
    total_loss: float

    def __add__(self, other: "Evaluation") -> "Evaluation":
        return Evaluation(self.confusion + other.confusion, self.total_loss + other.total_loss)

    @property
    def accuracy(self) -> float:
        """Top-1 accuracy."""
        return int(self.confusion.trace()) / int(self.confusion.sum())

    @property
    def loss(self) -> float:
        """Mean cross-entropy."""
        return self.total_loss / int(self.confusion.sum())

    @property
    def class_accuracy(self) -> Tensor:
        """Accuracy on each class, NaN for a class that was not tested, (classes,)."""
        return self.confusion.diagonal().double() / self.confusion.sum(dim=1)


def check_labels(labels: Tensor, num_classes: int, owner: str) -> None:
    """Refuse labels that a model has no output for."""
    highest = int(labels.max())
    if highest >= num_classes:
        raise CadisError(
            f"{owner} has label {highest}, but the model tells only {num_classes} classes apart, "
            "numbered from 0."
        )


def evaluate(model: FlatModel, examples: Examples) -> Evaluation:
    """Test a model."""
    view = view_of(model, examples)
    classes = view.logits.shape[1]
    check_labels(examples.labels, classes, "The test data")
    predicted = torch.where(
        view.logits.isnan().any(dim=1),
        (examples.labels + 1) % classes,
        view.logits.argmax(dim=1),
    )
    pairs = examples.labels * classes + predicted
    confusion = torch.bincount(pairs, minlength=classes**2).view(classes, classes).cpu()
    precise = torch.promote_types(view.logits.dtype, torch.float32)  # sums overflow in half
    losses = F.cross_entropy(view.logits.to(precise), examples.labels, reduction="sum")
    return Evaluation(confusion, float(losses))
