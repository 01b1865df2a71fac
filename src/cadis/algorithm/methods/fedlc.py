"""FedLC (Zhang et al., 2022): logits calibrated by how many samples of each class there are."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import Step


@dataclass(frozen=True)
class FedLC(BaseMethod):
    """Takes the loss of logits that are lower for classes that the client has few samples of.

    The cross-entropy is that of f_c - tau * n_c^(-1/4), with n_c samples of class c (Eq. 8 of the
    paper): a rare class must win by a larger margin. The margin of a class that the client does
    not have is infinite: its row is left alone. With tau = 0 it is FedAvg.

    Attributes:
        tau: how large the margins are; 0 is none.
    """

    name: ClassVar[str] = "fedlc"
    needs_class_outputs: ClassVar[bool] = True
    about: ClassVar[About] = About(kind="local loss under label skew", paper="Zhang et al., 2022")
    tau: Annotated[float, Ge(0)] = 1.0

    def calibrate(self, step: Step) -> Tensor:
        """The logits f_c - tau * n_c^(-1/4)."""
        if not self.tau:
            return step.logits
        counts = step.class_counts[..., None, :]
        margins = self.tau * counts.clamp_min(1).to(step.logits.dtype).pow(-0.25)
        never = torch.finfo(step.logits.dtype).min  # finite, so that no gradient is undefined
        return (step.logits - margins).masked_fill(counts == 0, never)
