"""One file a method, its client half and its server half together. It imports only the core."""

from cadis.methods.cadis import CADIS
from cadis.methods.defaults import Defaults, weighted_models
from cadis.methods.fedavg import FedAvg
from cadis.methods.feddyn import FedDyn
from cadis.methods.fedfa import FedFA
from cadis.methods.fedprox import FedProx
from cadis.methods.protocol import (
    Aggregation,
    Finished,
    LocalClient,
    LocalView,
    Method,
    Penalty,
    Prepared,
    Reply,
    ServerRound,
    ServerState,
    Step,
    Training,
    Weighing,
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
    "Defaults",
    "FedAvg",
    "FedDyn",
    "FedFA",
    "FedProx",
    "Finished",
    "LocalClient",
    "LocalView",
    "Method",
    "Penalty",
    "Prepared",
    "Reply",
    "ServerRound",
    "ServerState",
    "SingleSet",
    "Step",
    "Training",
    "Weighing",
    "label_of",
    "weighted_models",
]
