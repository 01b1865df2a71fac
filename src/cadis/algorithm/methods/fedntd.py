"""FedNTD: not-true distillation against forgetting.

Problem: local training forgets the classes that a client does not have.

Lee et al., NeurIPS 2022, https://arxiv.org/abs/2106.03097
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import BatchExtras, ModelOutputs, Step
from cadis.algorithm.methods.cadis import not_true_loss


@dataclass(frozen=True)
class FedNTD(BaseMethod):
    """FedAvg with distillation of the predictions for all classes except the true class.

    Use it if every client has only some of the classes.

    Clients add ``beta * KL(q || p)`` to the loss. Here q and p are the predictions of the received
    and of the local model: a softmax over the logits of all classes except the true class of the
    sample (Eq. 3 and 4 of the paper, with temperature 1).

    Attributes:
        beta: factor of the distillation term in the local loss, which keeps the received model's
            predictions for all classes except the true class; 0 gives FedAvg.
    """

    name: ClassVar[str] = "fedntd"
    needs_class_outputs: ClassVar[bool] = True
    about: ClassVar[About] = About(
        topic="local loss under label skew",
        paper=Paper(
            title="Preservation of the Global Knowledge by Not-True Distillation in Federated "
            "Learning",
            authors="Gihun Lee, Minchan Jeong, Yongjin Shin, Sangmin Bae, Se-Young Yun",
            venue="NeurIPS",
            year=2022,
            link="https://arxiv.org/abs/2106.03097",
        ),
    )
    beta: Annotated[float, Ge(0)] = 1.0

    @property
    def needs_model_outputs(self) -> bool:
        """True if beta > 0: distillation needs the predictions of the received model."""
        return self.beta > 0

    def prepare(self, outputs: ModelOutputs) -> BatchExtras:
        """Keep the logits of the received model, which are the same in all epochs."""
        return BatchExtras(per_sample={"teacher": outputs.logits})

    def penalty(self, step: Step) -> Tensor | None:
        """Return beta times the mean divergence of the batch."""
        if not self.needs_model_outputs:
            return None
        divergence = not_true_loss(step.logits, step.per_sample["teacher"], step.labels)
        return self.beta / len(step.labels) * divergence
