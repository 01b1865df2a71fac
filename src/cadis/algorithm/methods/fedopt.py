"""FedOpt: FedAvg with a server optimizer, under the names that papers use.

Every method can be combined with a server optimizer (``--server-optimizer adam``). The methods in
this file are FedAvg with one of them. Set its parameters with options, as in
``--method fedadam --server-lr 0.03``. ``cadis.algorithm.server_optimizers`` has the formulas.

Reddi et al., ICLR 2021, https://arxiv.org/abs/2003.00295
Hsu et al., arXiv 2019, https://arxiv.org/abs/1909.06335 (FedAvgM)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from cadis.algorithm.about import FEDAVGM_PAPER, FEDOPT_PAPER, About
from cadis.algorithm.base_method import BaseMethod

_ADAPTIVE = About(topic="server optimizer", paper=FEDOPT_PAPER, server_state="two moments")


@dataclass(frozen=True)
class FedAvgM(BaseMethod):
    """FedAvg with momentum on the server: the server optimizer `momentum`.

    Use it if the updates of different rounds contradict each other, because other clients take part
    in each round: momentum averages the updates over rounds.

    ``v <- server_momentum * v + (w_t - aggregated)``, then ``w_(t+1) = w_t - server_lr * v``, where
    w_t is the global model, and aggregated the mean that FedAvg computes.
    """

    name: ClassVar[str] = "fedavgm"
    default_parts: ClassVar[Mapping[str, str]] = {"server_optimizer": "momentum"}
    about: ClassVar[About] = About(
        topic="server optimizer", paper=FEDAVGM_PAPER, server_state="a velocity"
    )


@dataclass(frozen=True)
class FedAdam(BaseMethod):
    """FedAvg with Adam on the server: the server optimizer `adam`.

    Use it if all parameters need steps of similar size, although their updates differ in size.

    Adam gets ``w_t - aggregated`` as the gradient, where w_t is the global model, and aggregated
    the mean that FedAvg computes.
    """

    name: ClassVar[str] = "fedadam"
    default_parts: ClassVar[Mapping[str, str]] = {"server_optimizer": "adam"}
    about: ClassVar[About] = _ADAPTIVE


@dataclass(frozen=True)
class FedYogi(BaseMethod):
    """FedAvg with Yogi on the server: the server optimizer `yogi`.

    Use it instead of FedAdam if the size of updates changes suddenly: the step sizes of Yogi change
    slowly.

    Yogi gets ``w_t - aggregated`` as the gradient, where w_t is the global model, and aggregated
    the mean that FedAvg computes.
    """

    name: ClassVar[str] = "fedyogi"
    default_parts: ClassVar[Mapping[str, str]] = {"server_optimizer": "yogi"}
    about: ClassVar[About] = _ADAPTIVE


@dataclass(frozen=True)
class FedAdagrad(BaseMethod):
    """FedAvg with Adagrad on the server: the server optimizer `adagrad`.

    Use it if steps should become smaller with every round, for example with sparse updates.

    Adagrad gets ``w_t - aggregated`` as the gradient, where w_t is the global model, and aggregated
    the mean that FedAvg computes.
    """

    name: ClassVar[str] = "fedadagrad"
    default_parts: ClassVar[Mapping[str, str]] = {"server_optimizer": "adagrad"}
    about: ClassVar[About] = _ADAPTIVE
