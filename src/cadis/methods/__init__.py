"""One file a method, its client half and its server half together. It imports only the core."""

from cadis.methods.cadis import CADIS
from cadis.methods.defaults import Defaults
from cadis.methods.fedavg import FedAvg
from cadis.methods.feddyn import FedDyn
from cadis.methods.fedfa import FedFA
from cadis.methods.fedprox import FedProx
from cadis.methods.protocol import (
    Aggregation,
    ClientUpdate,
    LocalView,
    Method,
    Prepared,
    ServerRound,
    Step,
    TensorState,
)
from cadis.methods.singleset import SingleSet

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (CADIS, FedAvg, FedProx, FedFA, FedDyn, SingleSet)
}


def label_of(name: str) -> str:
    """A method's name as people write it: that of its class."""
    return METHODS[name].__name__ if name in METHODS else name


__all__ = [
    "CADIS",
    "METHODS",
    "Aggregation",
    "ClientUpdate",
    "Defaults",
    "FedAvg",
    "FedDyn",
    "FedFA",
    "FedProx",
    "LocalView",
    "Method",
    "Prepared",
    "ServerRound",
    "SingleSet",
    "Step",
    "TensorState",
    "label_of",
]
