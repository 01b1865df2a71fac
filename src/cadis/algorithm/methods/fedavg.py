"""FedAvg (McMahan et al., 2017): the mean of the clients' models, by number of samples."""

from dataclasses import dataclass
from typing import ClassVar

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod


@dataclass(frozen=True)
class FedAvg(BaseMethod):
    """Plain local SGD; weights n_i / N over the participants. The defaults are just that."""

    name: ClassVar[str] = "fedavg"
    about: ClassVar[About] = About(kind="reference", paper="McMahan et al., 2017")
