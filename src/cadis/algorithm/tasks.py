"""Tasks: loss, prediction and metrics for the outputs of a model."""

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
"""Reduction of the losses of single samples, as in ``torch.nn.functional``."""


class Task(Protocol):
    """Interface of the learning task: loss, prediction and metrics.

    Derive a frozen dataclass from :class:`Classification` and override some of its functions, or
    write all functions.

    Example:
        Classification with label smoothing:

        >>> from dataclasses import dataclass
        >>> import torch
        >>> from torch.nn import functional as F
        >>> import cadis
        >>> from cadis.algorithm.tasks import Classification
        >>> @dataclass(frozen=True)
        ... class SmoothClassification(Classification):
        ...     name = "smooth-classification"
        ...     smoothing: float = 0.1
        ...
        ...     def loss(self, outputs, labels, reduction):
        ...         smoothing = self.smoothing
        ...         return F.cross_entropy(
        ...             outputs, labels, reduction=reduction, label_smoothing=smoothing
        ...         )
        >>>
        >>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> clients, test = [(x[:20], y[:20]), (x[20:40], y[20:40])], (x[40:], y[40:])
        >>> model, task = torch.nn.Linear(4, 2), SmoothClassification()
        >>> result = cadis.run(model, clients, test, rounds=2, task=task)
        >>> len(result.history)
        2

    Attributes:
        name: name of the task in options and files.
    """

    name: ClassVar[str]

    @property
    def main_metric(self) -> str:
        """Name of the metric that decides which round is the best; larger is better.

        It is a key of :meth:`compute_metrics`, or one of the metrics that are computed from the
        confusion matrix for every task: "accuracy", "balanced_accuracy" or "f1".
        """

    @property
    def needs_outputs(self) -> bool:
        """True if :meth:`compute_metrics` must be called with the outputs for the test set."""

    def num_outputs(self, num_classes: int) -> int:
        """Return the number of outputs of a model for data with ``num_classes`` classes."""

    def num_classes(self, num_outputs: int) -> int:
        """Return the number of classes that a model with ``num_outputs`` outputs predicts."""

    def loss(self, outputs: Tensor, labels: Tensor, reduction: Reduction) -> Tensor:
        """Return the loss of a batch.

        Args:
            outputs: outputs of the model, (b, outputs).
            labels: true labels, (b,).
            reduction: "mean", "sum", or "none" for one loss per sample, which is needed if several
                clients are trained at once.

        Returns:
            A scalar tensor; with the reduction "none", the loss of each sample, (b,).
        """

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the predicted class of each sample, (n,), for outputs (n, outputs)."""

    def compute_metrics(self, outputs: Tensor, labels: Tensor) -> Mapping[str, float]:
        """Return metrics by name that are computed from the outputs of the model, such as AUC.

        Args:
            outputs: outputs of the model for the whole test set, (n, outputs).
            labels: true labels, (n,).
        """


@dataclass(frozen=True)
class Classification:
    """Classification with one output per class and cross-entropy loss.

    Attributes:
        metric: metric that decides which round and which method is the best.
    """

    name: ClassVar[str] = "classification"
    metric: Literal["accuracy", "balanced_accuracy", "f1", "auc"] = "accuracy"

    @property
    def main_metric(self) -> str:
        """Name of the metric that decides which round is the best."""
        return self.metric

    @property
    def needs_outputs(self) -> bool:
        """True for "auc", which cannot be computed from the confusion matrix."""
        return self.metric == "auc"

    def num_outputs(self, num_classes: int) -> int:
        """Return one output per class."""
        return num_classes

    def num_classes(self, num_outputs: int) -> int:
        """Return one class per output."""
        return num_outputs

    def loss(self, outputs: Tensor, labels: Tensor, reduction: Reduction) -> Tensor:
        """Return the cross-entropy."""
        return F.cross_entropy(outputs, labels, reduction=reduction)

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the class with the largest output, (n,)."""
        return outputs.argmax(dim=1)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return the softmax of the outputs, (n, classes)."""
        return outputs.softmax(dim=1)

    def compute_metrics(self, outputs: Tensor, labels: Tensor) -> Mapping[str, float]:
        """Return the area under the ROC curve, one-vs-rest, averaged over the classes.

        A class that no sample or every sample has is left out of the mean. NaN outputs count as the
        worst possible score.
        """
        truth = F.one_hot(labels, outputs.shape[1]).bool()  # (n, classes)
        scores = _replace_nan(outputs.double().softmax(dim=1), truth)
        areas = map(_compute_roc_auc, scores.T, truth.T)
        known = [area for area in areas if not isnan(area)]
        return {"auc": fmean(known) if known else nan}


@dataclass(frozen=True)
class Binary:
    """Binary classification with one output, the log-odds of label 1.

    Attributes:
        positive_weight: weight of samples with label 1 in the loss, if label 0 has the weight 1.
        metric: metric that decides which round and which method is the best.
    """

    name: ClassVar[str] = "binary"
    needs_outputs: ClassVar[bool] = True
    positive_weight: Annotated[float, Gt(0)] = 1.0
    metric: Literal["auc", "accuracy", "balanced_accuracy", "f1"] = "auc"

    @property
    def main_metric(self) -> str:
        """Name of the metric that decides which round is the best."""
        return self.metric

    def num_outputs(self, num_classes: int) -> int:
        """Return one output for two classes."""
        if num_classes != 2:
            raise CadisError(
                f"The task 'binary' needs data of two classes, not {num_classes}; choose the task "
                "classification."
            )
        return 1

    def num_classes(self, num_outputs: int) -> int:
        """Return two classes for one output."""
        if num_outputs != 1:
            raise CadisError(
                f"The task 'binary' needs a model with one output, not {num_outputs}; "
                "change its last layer, or choose the task classification."
            )
        return 2

    def loss(self, outputs: Tensor, labels: Tensor, reduction: Reduction) -> Tensor:
        """Return -(positive_weight * y * log p + (1 - y) * log (1 - p)), p = sigmoid(output)."""
        log_odds = self._log_odds(outputs)
        weight = None if self.positive_weight == 1 else log_odds.new_tensor(self.positive_weight)
        return F.binary_cross_entropy_with_logits(
            log_odds, labels.to(log_odds.dtype), reduction=reduction, pos_weight=weight
        )

    def predict(self, outputs: Tensor) -> Tensor:
        """Return 1 where the output is positive, else 0, (n,)."""
        return (self._log_odds(outputs) > 0).long()

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return the probabilities of label 0 and label 1, (n, 2)."""
        return torch.cat([torch.sigmoid(-outputs), torch.sigmoid(outputs)], dim=1)

    def compute_metrics(self, outputs: Tensor, labels: Tensor) -> Mapping[str, float]:
        """Return AUC, F1 of label 1, balanced accuracy and log loss.

        A metric is NaN if the test set has no samples of a label that the metric needs. NaN outputs
        count as the worst possible score; the log loss is then NaN.
        """
        log_odds, truth = self._log_odds(outputs).double(), labels == 1
        scores = _replace_nan(log_odds, truth)
        confusion = torch.bincount(2 * truth + (scores > 0), minlength=4).tolist()
        true_neg, false_pos, false_neg, true_pos = confusion
        recalls = _divide(true_pos, true_pos + false_neg), _divide(true_neg, true_neg + false_pos)
        return {
            "auc": _compute_roc_auc(scores, truth),
            "f1": _divide(2 * true_pos, 2 * true_pos + false_pos + false_neg),
            "balanced_accuracy": sum(recalls) / 2,
            "log_loss": float(F.binary_cross_entropy_with_logits(log_odds, truth.double())),
        }

    def _log_odds(self, outputs: Tensor) -> Tensor:
        """Return the log-odds of label 1, (n,), the only output of the model."""
        self.num_classes(outputs.shape[1])
        return outputs[:, 0]


def _compute_roc_auc(scores: Tensor, truth: Tensor) -> float:
    """Return the area under the ROC curve; NaN if one of the two classes is missing.

    It is the fraction of pairs of a positive and a negative sample in which the positive one has
    the higher score; ties count as half. With P positive and N negative samples, it equals
    (sum of the ranks of the positive samples - P (P + 1) / 2) / (P N) (Mann-Whitney statistic).
    """
    from scipy.stats import rankdata  # noqa: PLC0415  # slow to import

    ranks = torch.from_numpy(rankdata(scores.numpy()))  # (n,), from 1; tied ranks are averaged
    positives = int(truth.sum())
    above = float(ranks[truth].sum()) - positives * (positives + 1) / 2
    return _divide(above, positives * (len(truth) - positives))


def _replace_nan(scores: Tensor, truth: Tensor) -> Tensor:
    """Replace NaN with the worst score: -inf for positive samples, inf for negative samples."""
    worst = torch.where(truth, -torch.inf, torch.inf).double()
    return torch.where(scores.isnan(), worst, scores)


def _divide(part: float, whole: float) -> float:
    return part / whole if whole else nan


_BUILT_IN: tuple[type[Task], ...] = (Classification, Binary)

TASKS: dict[str, type[Task]] = {part.name: part for part in _BUILT_IN}
"""Built-in tasks by name."""
