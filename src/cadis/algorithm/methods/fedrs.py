"""FedRS (Li and Zhan, 2021): a softmax in which classes that the client lacks are restricted."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Le
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import Step


@dataclass(frozen=True)
class FedRS(BaseMethod):
    """Takes the loss of logits that are scaled down for classes that the client does not have.

    The logits of missing classes are multiplied by alpha (Eq. 6 of the paper), so that their rows
    of the classifier are pushed away less by samples of other classes. With alpha = 1 it is FedAvg.

    Departure: the paper scales a classifier without bias; here the bias is scaled along.

    Attributes:
        alpha: what the logits of missing classes are multiplied by.
    """

    name: ClassVar[str] = "fedrs"
    needs_class_outputs: ClassVar[bool] = True
    about: ClassVar[About] = About(kind="local loss under label skew", paper="Li and Zhan, 2021")
    alpha: Annotated[float, Ge(0), Le(1)] = 0.5

    def calibrate(self, step: Step) -> Tensor:
        """The logits, those of missing classes times alpha."""
        missing = (step.class_counts[..., None, :] == 0).to(step.logits.dtype)
        return step.logits * (1 - (1 - self.alpha) * missing)
