"""Tasks: what a model's outputs mean. A task owns the loss, the prediction and the measures."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, nan
from statistics import fmean
from typing import Annotated, ClassVar, Literal, Protocol, TypeAlias

import torch
from annotated_types import Gt
from torch import Tensor
from torch.nn import functional as F

from cadis.errors import CadisError

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
        """Return how many outputs a model needs to tell so many classes apart."""

    def num_classes(self, num_outputs: int) -> int:
        """Return how many classes a model with so many outputs tells apart."""

    def loss(self, outputs: Tensor, labels: Tensor, reduction: Reduction) -> Tensor:
        """Return the loss of a batch: its outputs, (b, outputs), and its labels, (b,).

        Args:
            outputs: of the model.
            labels: the truth.
            reduction: the mean of the samples' losses, their sum, or "none": each, (b,), which
                several clients that are trained at once are told apart by.
        """

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the class that a model says, (n,), of its outputs, (n, outputs)."""

    def measures(self, outputs: Tensor, labels: Tensor) -> Mapping[str, float]:
        """Return measures on a whole test set, besides those of the confusion matrix, by name."""


@dataclass(frozen=True)
class Classification:
    """Which of the classes is it? One output a class, cross-entropy and top-1 accuracy.

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
        """Area under the ROC curve, the mean over the classes of each against all others.

        A class that the test set does not have, or has alone, does not count. Outputs that are
        not numbers count as the most wrong ones.
        """
        truth = F.one_hot(labels, outputs.shape[1]).bool()  # (n, classes)
        scores = _without_nan(outputs.double().softmax(dim=1), truth)
        areas = map(_roc_auc, scores.T, truth.T)
        known = [area for area in areas if not isnan(area)]
        return {"auc": fmean(known) if known else nan}


@dataclass(frozen=True)
class Binary:
    """Is it so (label 1), or not (label 0)? The output is the log-odds of its being so.

    Attributes:
        positive_weight: how much a sample of label 1 weighs in the loss that is trained; above 1
            where they are rare.
        metric: the measure that decides which round, and which method, is best.
    """

    name: ClassVar[str] = "binary"
    needs_outputs: ClassVar[bool] = True
    positive_weight: Annotated[float, Gt(0)] = 1.0
    metric: Literal["auc", "accuracy", "balanced_accuracy", "f1"] = "auc"

    @property
    def headline(self) -> str:
        """The measure that decides."""
        return self.metric

    def num_outputs(self, num_classes: int) -> int:
        """One output tells two classes apart."""
        if num_classes != 2:
            raise CadisError(
                f"The task 'binary' tells two classes apart, not {num_classes}; "
                "choose classification."
            )
        return 1

    def num_classes(self, num_outputs: int) -> int:
        """Two, by the only output."""
        if num_outputs != 1:
            raise CadisError(
                f"The task 'binary' needs a model with one output, not {num_outputs}; "
                "change its last layer, or choose classification."
            )
        return 2

    def loss(self, outputs: Tensor, labels: Tensor, reduction: Reduction) -> Tensor:
        """Binary cross-entropy: -(positive_weight * y * log p + (1 - y) * log (1 - p))."""
        log_odds = self._log_odds(outputs)
        weight = None if self.positive_weight == 1 else log_odds.new_tensor(self.positive_weight)
        return F.binary_cross_entropy_with_logits(
            log_odds, labels.to(log_odds.dtype), reduction=reduction, pos_weight=weight
        )

    def predict(self, outputs: Tensor) -> Tensor:
        """1 where the output is positive."""
        return (self._log_odds(outputs) > 0).long()

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Those of label 0 and of label 1, (n, 2)."""
        return torch.cat([torch.sigmoid(-outputs), torch.sigmoid(outputs)], dim=1)

    def measures(self, outputs: Tensor, labels: Tensor) -> Mapping[str, float]:
        """Area under the ROC curve, F1 of label 1, mean recall of both labels, and log loss.

        What a measure needs and the test set has not makes it NaN. Outputs that are not numbers
        count as the most wrong ones; the log loss is not a number then.
        """
        log_odds, truth = self._log_odds(outputs).double(), labels == 1
        scores = _without_nan(log_odds, truth)
        confusion = torch.bincount(2 * truth + (scores > 0), minlength=4).tolist()
        correct_negatives, alarms, misses, hits = confusion
        recalls = _share(hits, hits + misses), _share(correct_negatives, correct_negatives + alarms)
        return {
            "auc": _roc_auc(scores, truth),
            "f1": _share(2 * hits, 2 * hits + alarms + misses),
            "balanced_accuracy": sum(recalls) / 2,
            "log_loss": float(F.binary_cross_entropy_with_logits(log_odds, truth.double())),
        }

    def _log_odds(self, outputs: Tensor) -> Tensor:
        """The only output, (n,)."""
        self.num_classes(outputs.shape[1])
        return outputs[:, 0]


def _roc_auc(scores: Tensor, truth: Tensor) -> float:
    """Return the area under the ROC curve; NaN if one of the classes is missing.

    It is the share of pairs in which a positive scores above a negative, ties counting half. By
    ranks (Mann-Whitney): (the sum of the positives' ranks - P (P + 1) / 2) / (P N).
    """
    from scipy.stats import rankdata  # noqa: PLC0415  # it takes a while to import

    ranks = torch.from_numpy(rankdata(scores.numpy()))  # (n,), from 1; ties share their mean
    positives = int(truth.sum())
    above = float(ranks[truth].sum()) - positives * (positives + 1) / 2
    return _share(above, positives * (len(truth) - positives))


def _without_nan(scores: Tensor, truth: Tensor) -> Tensor:
    """Replace scores that are not numbers by the most wrong ones."""
    worst = torch.where(truth, -torch.inf, torch.inf).double()
    return torch.where(scores.isnan(), worst, scores)


def _share(part: float, whole: float) -> float:
    """A ratio; NaN of nothing."""
    return part / whole if whole else nan


_OURS: tuple[type[Task], ...] = (Classification, Binary)

TASKS: dict[str, type[Task]] = {kind.name: kind for kind in _OURS}
