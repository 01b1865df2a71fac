"""FedRS: a restricted softmax for classes that a client does not have.

Problem: if a client has no samples of a class, its training moves the row of this class in the
classifier layer away from the features of all samples. This makes the aggregated model worse.

Li and Zhan, KDD 2021, https://doi.org/10.1145/3447548.3467254
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Le
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import Step


@dataclass(frozen=True)
class FedRS(BaseMethod):
    """FedAvg with scaled-down logits for classes that a client does not have.

    Use it if every client has only some of the classes.

    In the loss, ``alpha * f_c`` replaces the logit f_c of every class c that the client does not
    have (Eq. 6 of the paper). So the samples of other classes change the row of this class less.

    Departure from the paper: there, the classifier layer has no bias; here the bias is also scaled.

    Attributes:
        alpha: factor in the local loss that scales down the logits of classes that a client does
            not have; 1 gives FedAvg.
    """

    name: ClassVar[str] = "fedrs"
    needs_class_outputs: ClassVar[bool] = True
    about: ClassVar[About] = About(
        topic="local loss under label skew",
        paper=Paper(
            title="FedRS: Federated Learning with Restricted Softmax for Label Distribution "
            "Non-IID Data",
            authors="Xin-Chun Li, De-Chuan Zhan",
            venue="KDD",
            year=2021,
            link="https://doi.org/10.1145/3447548.3467254",
        ),
    )
    alpha: Annotated[float, Ge(0), Le(1)] = 0.5

    def calibrate(self, step: Step) -> Tensor:
        """Return the logits, multiplied by alpha for classes that the client does not have."""
        missing = (step.class_counts[..., None, :] == 0).to(step.logits.dtype)
        return step.logits * (1 - (1 - self.alpha) * missing)
