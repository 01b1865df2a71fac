"""FedProx: a proximal term against client drift.

Problem: with heterogeneous data, many local steps move local models far from the global model, and
their mean converges slowly.

Tian Li, Anit Kumar Sahu, Manzil Zaheer, Maziar Sanjabi, Ameet Talwalkar, Virginia Smith: Federated
Optimization in Heterogeneous Networks. MLSys 2020. https://arxiv.org/abs/1812.06127
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import Step


@dataclass(frozen=True)
class FedProx(BaseMethod):
    """FedAvg with a proximal term that keeps local models near the received model.

    Clients minimize ``L(w) + mu / 2 * ||w - w_t||^2``, where w_t is the received model. Weights are
    those of FedAvg.

    Use it as a simple correction of drift that needs no state.

    Attributes:
        mu: strength of the proximal term; 0 is FedAvg.
    """

    name: ClassVar[str] = "fedprox"
    about: ClassVar[About] = About(
        topic="drift correction",
        paper=Paper(
            title="Federated Optimization in Heterogeneous Networks",
            authors="Tian Li, Anit Kumar Sahu, Manzil Zaheer, Maziar Sanjabi, Ameet Talwalkar, "
            "Virginia Smith",
            venue="MLSys",
            year=2020,
            link="https://arxiv.org/abs/1812.06127",
        ),
    )
    mu: Annotated[float, Ge(0)] = 0.01

    def penalty(self, step: Step) -> Tensor | None:
        """Return the proximal term, mu / 2 * ||w - w_t||^2."""
        return self.mu / 2 * (step.parameters - step.received).square().sum(dim=-1)
