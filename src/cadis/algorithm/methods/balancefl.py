"""BalanceFL: class-balanced sampling and knowledge inheritance.

Problem: with long-tailed data, local models neglect the rare classes of a client and forget the
classes that the client does not have.

Shuai et al., IPSN 2022, https://doi.org/10.1109/IPSN54338.2022.00029
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import BatchExtras, ModelOutputs, Step
from cadis.algorithm.methods.cadis import masked_kl_divergence


@dataclass(frozen=True)
class BalanceFL(BaseMethod):
    """FedAvg with class-balanced batches, and distillation for classes that a client lacks.

    Use it if the classes of a client have very different numbers of samples, or some are missing.

    In each epoch, client i draws n_i samples with replacement, so that each of its classes has the
    same probability (class-balanced sampling). Clients add ``inheritance * KL(q || p)`` to the
    loss, where q and p are the predictions of the received and of the local model: a softmax over
    only the classes that the client does not have (knowledge inheritance).

    Departure from the paper: feature augmentation and smooth regularization are left out. The
    option ``--augment`` augments images with any method.

    Attributes:
        inheritance: factor of the distillation term in the local loss, which keeps the received
            model's predictions for classes that a client does not have; 0 disables the term.
        balanced: draw samples so that each class of a client has the same probability.
    """

    name: ClassVar[str] = "balancefl"
    needs_class_outputs: ClassVar[bool] = True
    about: ClassVar[About] = About(
        topic="local loss under label skew",
        paper=Paper(
            title="BalanceFL: Addressing Class Imbalance in Long-Tail Federated Learning",
            authors="Xian Shuai, Yulin Shen, Siyang Jiang, Zhihe Zhao, Zhenyu Yan, Guoliang Xing",
            venue="IPSN",
            year=2022,
            link="https://doi.org/10.1109/IPSN54338.2022.00029",
        ),
    )
    inheritance: Annotated[float, Ge(0)] = 1.0
    balanced: bool = True

    @property
    def needs_model_outputs(self) -> bool:
        """True if inheritance > 0: distillation needs the predictions of the received model."""
        return self.inheritance > 0

    def prepare(self, outputs: ModelOutputs) -> BatchExtras:
        """Keep the logits of the received model, which are the same in all epochs."""
        return BatchExtras(per_sample={"teacher": outputs.logits})

    def penalty(self, step: Step) -> Tensor | None:
        """Return the mean divergence from the received model over the missing classes."""
        if not self.needs_model_outputs:
            return None
        present = (step.class_counts > 0)[..., None, :].expand(step.logits.shape)
        divergence = masked_kl_divergence(present, step.logits, step.per_sample["teacher"])
        return self.inheritance / len(step.labels) * divergence

    def epoch_order(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Draw n_i samples, a sample of class c with probability 1 / (classes * n_c), (n_i,)."""
        if not self.balanced:
            return super().epoch_order(labels, generator)
        probabilities = 1 / torch.bincount(labels)[labels]
        indices = torch.multinomial(probabilities.cpu(), len(labels), True, generator=generator)
        return indices.to(labels.device)
