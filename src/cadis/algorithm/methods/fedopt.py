"""FedOpt: FedAvg with a server optimizer, under the names of the literature.

A server optimizer works with every method (``--server-optimizer adam``). These methods select one
by name; its parameters are ordinary options: ``--method fedadam --server-lr 0.03``. The formulas
are in ``cadis.algorithm.server_optimizers``.

Sashank Reddi, Zachary Charles, Manzil Zaheer, Zachary Garrett, Keith Rush, Jakub Konečný, Sanjiv
Kumar, H. Brendan McMahan: Adaptive Federated Optimization. ICLR 2021.
https://arxiv.org/abs/2003.00295

Tzu-Ming Harry Hsu, Hang Qi, Matthew Brown: Measuring the Effects of Non-Identical Data Distribution
for Federated Visual Classification. 2019. https://arxiv.org/abs/1909.06335
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from cadis.algorithm.about import FEDAVGM_PAPER, FEDOPT_PAPER, About
from cadis.algorithm.base_method import BaseMethod

_ADAPTIVE = About(
    topic="server optimizer",
    paper=FEDOPT_PAPER,
    server_state="two moments",
)


@dataclass(frozen=True)
class FedAvgM(BaseMethod):
    """FedAvg with momentum on the server: the server optimizer `momentum`.

    ``v <- server_momentum * v + (w_t - w)``, ``w <- w_t - server_lr * v``, where w is the mean of
    FedAvg.

    Use it if rounds with different participants contradict each other: the velocity averages them.
    """

    name: ClassVar[str] = "fedavgm"
    default_parts: ClassVar[Mapping[str, str]] = {"server_optimizer": "momentum"}
    about: ClassVar[About] = About(
        topic="server optimizer",
        paper=FEDAVGM_PAPER,
        server_state="a velocity",
    )


@dataclass(frozen=True)
class FedAdam(BaseMethod):
    """FedAvg with Adam on the server: the server optimizer `adam`.

    The pseudo-gradient is w_t - w, where w is the mean of FedAvg.

    Use it if parameters need steps of similar size although their updates differ in size.
    """

    name: ClassVar[str] = "fedadam"
    default_parts: ClassVar[Mapping[str, str]] = {"server_optimizer": "adam"}
    about: ClassVar[About] = _ADAPTIVE


@dataclass(frozen=True)
class FedYogi(BaseMethod):
    """FedAvg with Yogi on the server: the server optimizer `yogi`.

    The pseudo-gradient is w_t - w, where w is the mean of FedAvg.

    Use it instead of FedAdam if the size of updates changes suddenly: its step sizes change slowly.
    """

    name: ClassVar[str] = "fedyogi"
    default_parts: ClassVar[Mapping[str, str]] = {"server_optimizer": "yogi"}
    about: ClassVar[About] = _ADAPTIVE


@dataclass(frozen=True)
class FedAdagrad(BaseMethod):
    """FedAvg with Adagrad on the server: the server optimizer `adagrad`.

    The pseudo-gradient is w_t - w, where w is the mean of FedAvg.

    Use it if steps should become smaller with every round, for example with sparse updates.
    """

    name: ClassVar[str] = "fedadagrad"
    default_parts: ClassVar[Mapping[str, str]] = {"server_optimizer": "adagrad"}
    about: ClassVar[About] = _ADAPTIVE
