"""FedNTD (Lee et al., 2022): what the global model knows of the classes that are not true."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import BatchExtras, ModelOutputs, Step
from cadis.algorithm.methods.cadis import not_true_loss


@dataclass(frozen=True)
class FedNTD(BaseMethod):
    """Distils what the received model holds of the classes that are not a sample's own.

    Adds beta * KL(q || p) to the loss, where q and p are the softmax of the received and of the
    local model's logits without that of the true class (Eq. 3 and 4 of the paper, with its
    temperature of 1). Clients do not forget what they have no samples of.

    Attributes:
        beta: strength of the distillation; 0 is FedAvg.
    """

    name: ClassVar[str] = "fedntd"
    needs_class_outputs: ClassVar[bool] = True
    about: ClassVar[About] = About(kind="local loss under label skew", paper="Lee et al., 2022")
    beta: Annotated[float, Ge(0)] = 1.0

    @property
    def needs_view(self) -> bool:
        """For the logits of the received model, if there is anything to distil."""
        return self.beta > 0

    def prepare(self, view: ModelOutputs) -> BatchExtras:
        """The received model's logits: the same in every epoch, so computed once."""
        return BatchExtras(per_example={"teacher": view.logits})

    def penalty(self, step: Step) -> Tensor | None:
        """Beta times the mean divergence of the batch."""
        if not self.needs_view:
            return None
        divergence = not_true_loss(step.logits, step.per_example["teacher"], step.labels)
        return self.beta / len(step.labels) * divergence
