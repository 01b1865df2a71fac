"""Two classes and one output: binary cross-entropy, and measures for classes of unequal size."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Gt
from torch import Tensor
from torch.nn import functional as F

from cadis.algorithm.tasks.protocol import Reduction
from cadis.algorithm.tasks.ranking import roc_auc
from cadis.errors import CadisError


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
        log_odds = self._log_odds(outputs).double()
        truth = labels == 1
        worst = torch.where(truth, -torch.inf, torch.inf).double()
        scores = torch.where(log_odds.isnan(), worst, log_odds)
        confusion = torch.bincount(2 * truth + (scores > 0), minlength=4).tolist()
        correct_negatives, alarms, misses, hits = confusion
        recalls = _share(hits, hits + misses), _share(correct_negatives, correct_negatives + alarms)
        return {
            "auc": roc_auc(scores, truth),
            "f1": _share(2 * hits, 2 * hits + alarms + misses),
            "balanced_accuracy": sum(recalls) / 2,
            "log_loss": float(F.binary_cross_entropy_with_logits(log_odds, truth.double())),
        }

    def _log_odds(self, outputs: Tensor) -> Tensor:
        """The only output, (n,)."""
        self.num_classes(outputs.shape[1])
        return outputs[:, 0]


def _share(part: float, whole: float) -> float:
    """A ratio; NaN of nothing."""
    return part / whole if whole else float("nan")
