"""One file a method, its client half and its server half together. It imports only the core."""

from cadis.methods.cadis import CADIS, CADISPaper
from cadis.methods.cadis_clusters import CADISClusters
from cadis.methods.cfl import CFL
from cadis.methods.defaults import Defaults, weighted_models
from cadis.methods.fedavg import FedAvg
from cadis.methods.feddyn import FedDyn
from cadis.methods.fedfa import FedFA
from cadis.methods.fedprox import FedProx
from cadis.methods.flhc import FLHC
from cadis.methods.ifca import IFCA
from cadis.methods.protocol import (
    Aggregation,
    Calibration,
    EpochOrder,
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
    method.name: method
    for method in (
        CADIS,
        FedAvg,
        FedProx,
        FedFA,
        FedDyn,
        SingleSet,
        CADISPaper,
        IFCA,
        CFL,
        FLHC,
        CADISClusters,
    )
}


def label_of(name: str) -> str:
    """A method's name as people write it: its label, or the name of its class."""
    if name not in METHODS:
        return name
    method = METHODS[name]
    return str(getattr(method, "label", method.__name__))


__all__ = [
    "CADIS",
    "CFL",
    "FLHC",
    "IFCA",
    "METHODS",
    "Aggregation",
    "CADISClusters",
    "CADISPaper",
    "Calibration",
    "Defaults",
    "EpochOrder",
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
