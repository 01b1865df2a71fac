"""FedRS: a softmax in which the classes that a client lacks are restricted.

Problem: a client without samples of a class pushes its row of the classifier layer away from all
features, which harms the mean of the models.

Xin-Chun Li, De-Chuan Zhan: FedRS: Federated Learning with Restricted Softmax for Label Distribution
Non-IID Data. KDD 2021. https://doi.org/10.1145/3447548.3467254
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
    """FedAvg with scaled-down logits for classes without samples at the client.

    The loss uses ``alpha * f_c`` instead of the logit f_c for every class c that the client does
    not have (Eq. 6 of the paper). So samples of other classes change its row less.

    Use it if every client has only some of the classes.

    Departure: the paper scales a classifier layer without bias; here the bias is scaled, too.

    Attributes:
        alpha: factor of the logits of missing classes; 1 is FedAvg.
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
        """Return the logits, those of missing classes times alpha."""
        missing = (step.class_counts[..., None, :] == 0).to(step.logits.dtype)
        return step.logits * (1 - (1 - self.alpha) * missing)
