"""FedAvg with a server optimiser, under the names of the literature (FedOpt; Reddi et al., 2021).

A server optimiser goes with every method (``--server-optimizer adam``); these are for those who
look for it by name. Its parameters are options as ever: ``--method fedadam --server-lr 0.03``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod

_REDDI = About(kind="server optimiser", paper="Reddi et al., 2021", server_memory="two moments")


@dataclass(frozen=True)
class FedAvgM(BaseMethod):
    """FedAvg whose server steps with momentum: the server optimiser `momentum`."""

    name: ClassVar[str] = "fedavgm"
    default_parts: ClassVar[Mapping[str, str]] = {"server_optimizer": "momentum"}
    about: ClassVar[About] = About(
        kind="server optimiser", paper="Hsu, Qi and Brown, 2019", server_memory="a velocity"
    )


@dataclass(frozen=True)
class FedAdam(BaseMethod):
    """FedAvg whose server steps by Adam: the server optimiser `adam`."""

    name: ClassVar[str] = "fedadam"
    default_parts: ClassVar[Mapping[str, str]] = {"server_optimizer": "adam"}
    about: ClassVar[About] = _REDDI


@dataclass(frozen=True)
class FedYogi(BaseMethod):
    """FedAvg whose server steps by Yogi: the server optimiser `yogi`."""

    name: ClassVar[str] = "fedyogi"
    default_parts: ClassVar[Mapping[str, str]] = {"server_optimizer": "yogi"}
    about: ClassVar[About] = _REDDI


@dataclass(frozen=True)
class FedAdagrad(BaseMethod):
    """FedAvg whose server steps by Adagrad: the server optimiser `adagrad`."""

    name: ClassVar[str] = "fedadagrad"
    default_parts: ClassVar[Mapping[str, str]] = {"server_optimizer": "adagrad"}
    about: ClassVar[About] = _REDDI
