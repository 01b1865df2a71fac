"""FedNTD: not-true distillation against forgetting.

Problem: local training forgets the classes that a client does not have.

Gihun Lee, Minchan Jeong, Yongjin Shin, Sangmin Bae, Se-Young Yun: Preservation of the Global
Knowledge by Not-True Distillation in Federated Learning. NeurIPS 2022.
https://arxiv.org/abs/2106.03097
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
    """FedAvg with distillation of the received model's predictions for not-true classes.

    Clients add ``beta * KL(q || p)`` to the loss, where q and p are the softmax of the received and
    of the local model's logits without the true class (Eq. 3 and 4 of the paper, temperature 1).

    Use it if every client has only some of the classes.

    Attributes:
        beta: strength of the distillation; 0 is FedAvg.
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
        """True with distillation: the received model is the teacher."""
        return self.beta > 0

    def prepare(self, outputs: ModelOutputs) -> BatchExtras:
        """Keep the received model's logits, which are the same in every epoch."""
        return BatchExtras(per_sample={"teacher": outputs.logits})

    def penalty(self, step: Step) -> Tensor | None:
        """Return beta times the mean divergence of the batch."""
        if not self.needs_model_outputs:
            return None
        divergence = not_true_loss(step.logits, step.per_sample["teacher"], step.labels)
        return self.beta / len(step.labels) * divergence
