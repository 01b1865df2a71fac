"""FedProx (Li et al., 2020): FedAvg whose clients are held near the received model."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import Step


@dataclass(frozen=True)
class FedProx(BaseMethod):
    """Adds mu / 2 * ||w - w_t||^2 to the local loss; weights as FedAvg.

    Attributes:
        mu: strength of the proximal term.
    """

    name: ClassVar[str] = "fedprox"
    about: ClassVar[About] = About(kind="drift correction", paper="Li et al., 2020")
    mu: Annotated[float, Ge(0)] = 0.01

    def penalty(self, step: Step) -> Tensor | None:
        """The proximal term, mu / 2 * ||w - w_t||^2."""
        return self.mu / 2 * (step.parameters - step.received).square().sum(dim=-1)
