"""FedLC: logits calibrated with the number of samples per class.

Problem: with label skew, local models overfit the classes with many samples.

Zhang et al., ICML 2022, https://arxiv.org/abs/2209.00189
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
    """FedAvg with lower logits for the classes of which a client has few samples.

    Use it if clients have all classes, but in very different proportions.

    In the cross-entropy, ``f_c - tau * n_c^(-1/4)`` replaces the logit f_c, where n_c is the number
    of the client's samples of class c (Eq. 8 of the paper). So a class with few samples must have a
    larger margin to other classes. The margin of a class without samples is infinite, so that its
    row of the classifier layer does not change.

    Attributes:
        tau: factor of the margins in the local loss: the fewer samples a client has of a class, the
            more is subtracted from the logit of the class; 0 gives FedAvg.
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
