"""FedLC: logits calibrated by the number of samples per class.

Problem: with label skew, local models overfit the classes with many samples.

Jie Zhang, Zhiqi Li, Bo Li, Jianghe Xu, Shuang Wu, Shouhong Ding, Chao Wu: Federated Learning with
Label Distribution Skew via Logits Calibration. ICML 2022. https://arxiv.org/abs/2209.00189
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import Step


@dataclass(frozen=True)
class FedLC(BaseMethod):
    """FedAvg with logits that are lower for classes with few samples at the client.

    The cross-entropy uses ``f_c - tau * n_c^(-1/4)`` instead of the logit f_c, with n_c samples of
    class c (Eq. 8 of the paper): a rare class must win by a larger margin. The margin of a class
    without samples is infinite, so its row of the classifier layer does not change.

    Use it if clients have all classes, but in very different proportions.

    Attributes:
        tau: scale of the margins; 0 is FedAvg.
    """

    name: ClassVar[str] = "fedlc"
    needs_class_outputs: ClassVar[bool] = True
    about: ClassVar[About] = About(
        topic="local loss under label skew",
        paper=Paper(
            title="Federated Learning with Label Distribution Skew via Logits Calibration",
            authors="Jie Zhang, Zhiqi Li, Bo Li, Jianghe Xu, Shuang Wu, Shouhong Ding, Chao Wu",
            venue="ICML",
            year=2022,
            link="https://arxiv.org/abs/2209.00189",
        ),
    )
    tau: Annotated[float, Ge(0)] = 1.0

    def calibrate(self, step: Step) -> Tensor:
        """Return the calibrated logits f_c - tau * n_c^(-1/4)."""
        if not self.tau:
            return step.logits
        counts = step.class_counts[..., None, :]
        margins = self.tau * counts.clamp_min(1).to(step.logits.dtype).pow(-0.25)
        lowest = torch.finfo(step.logits.dtype).min  # finite, so that no gradient is NaN
        return (step.logits - margins).masked_fill(counts == 0, lowest)
