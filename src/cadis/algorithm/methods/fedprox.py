"""FedProx: a proximal term against client drift.

Problem: with heterogeneous data, many local steps move local models far from the global model, and
their mean converges slowly.

Li et al., MLSys 2020, https://arxiv.org/abs/1812.06127
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

    Use it as a simple method against client drift: clients and server keep no state between rounds.

    Clients minimize ``L(w) + mu / 2 * ||w - w_t||^2``, where L is the loss on their data and w_t is
    the received model. The server aggregates as in FedAvg.

    Attributes:
        mu: factor of the proximal term in the local loss, which keeps local models near the
            received model; 0 disables the term.
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
