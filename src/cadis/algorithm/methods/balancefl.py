"""BalanceFL (Shuai et al., 2022): balanced classes at hand, inherited knowledge of the others."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import BatchExtras, ModelOutputs, Step
from cadis.algorithm.methods.cadis import divergence_without


@dataclass(frozen=True)
class BalanceFL(BaseMethod):
    """Draws classes evenly for its batches, and keeps what is known of missing ones.

    An epoch draws as many samples as there are, each class of the client with the same chance
    (class-balanced sampling). For the classes that the client does not have, the received model's
    softmax among them is distilled (knowledge inheritance): the local model as it is updated is to
    be that of a client with balanced data of all classes.

    Departure: the paper's augmentation of features and its smoothing of confident predictions are
    left out; ``--augment`` changes pictures for any method.

    Attributes:
        inheritance: strength of the distillation of missing classes; 0 is none.
        balanced: whether epochs draw classes evenly.
    """

    name: ClassVar[str] = "balancefl"
    needs_class_outputs: ClassVar[bool] = True
    about: ClassVar[About] = About(kind="local loss under label skew", paper="Shuai et al., 2022")
    inheritance: Annotated[float, Ge(0)] = 1.0
    balanced: bool = True

    @property
    def needs_view(self) -> bool:
        """For the logits of the received model, if there is anything to inherit."""
        return self.inheritance > 0

    def prepare(self, view: ModelOutputs) -> BatchExtras:
        """The received model's logits: the same in every epoch, so computed once."""
        return BatchExtras(per_example={"teacher": view.logits})

    def penalty(self, step: Step) -> Tensor | None:
        """The mean divergence from the received model among the missing classes."""
        if not self.needs_view:
            return None
        present = (step.class_counts > 0)[..., None, :].expand(step.logits.shape)
        divergence = divergence_without(present, step.logits, step.per_example["teacher"])
        return self.inheritance / len(step.labels) * divergence

    def epoch_order(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Draw with replacement, a sample of class c with a chance of 1 / (classes * n_c)."""
        if not self.balanced:
            return super().epoch_order(labels, generator)
        chances = 1 / torch.bincount(labels)[labels]
        places = torch.multinomial(chances.cpu(), len(labels), True, generator=generator)
        return places.to(labels.device)
