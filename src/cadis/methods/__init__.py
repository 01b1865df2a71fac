"""One file a method, its client half and its server half together. It imports only the core."""

from cadis.methods.balancefl import BalanceFL
from cadis.methods.cadis import CADIS, CADISPaper
from cadis.methods.cadis_clusters import CADISClusters
from cadis.methods.cfl import CFL
from cadis.methods.defaults import Defaults, weighted_models
from cadis.methods.fedadp import FedAdp
from cadis.methods.fedat import FedAT
from cadis.methods.fedavg import FedAvg
from cadis.methods.fedcav import FedCav
from cadis.methods.feddrl import FedDRL
from cadis.methods.feddyn import FedDyn
from cadis.methods.fedfa import FedFA
from cadis.methods.fedfv import FedFV
from cadis.methods.fedlc import FedLC
from cadis.methods.fednova import FedNova
from cadis.methods.fedntd import FedNTD
from cadis.methods.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from cadis.methods.fedprox import FedProx
from cadis.methods.fedrs import FedRS
from cadis.methods.flhc import FLHC
from cadis.methods.ifca import IFCA
from cadis.methods.moon import MOON
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
    SecondsOf,
    ServerRound,
    ServerState,
    Slopes,
    Step,
    Training,
    Weighing,
)
from cadis.methods.scaffold import SCAFFOLD
from cadis.methods.singleset import SingleSet

_OURS: tuple[type[Method], ...] = (
    CADIS,
    FedAvg,
    FedProx,
    FedFA,
    FedDyn,
    SingleSet,
    CADISPaper,
    SCAFFOLD,
    FedNova,
    FedAvgM,
    FedAdam,
    FedYogi,
    FedAdagrad,
    FedLC,
    FedRS,
    FedNTD,
    BalanceFL,
    MOON,
    FedAT,
    FedAdp,
    FedCav,
    FedFV,
    FedDRL,
    IFCA,
    CFL,
    FLHC,
    CADISClusters,
)

METHODS: dict[str, type[Method]] = {method.name: method for method in _OURS}
"""By name. A method's place here is its colour: new ones come last."""


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
    "MOON",
    "SCAFFOLD",
    "Aggregation",
    "BalanceFL",
    "CADISClusters",
    "CADISPaper",
    "Calibration",
    "Defaults",
    "EpochOrder",
    "FedAT",
    "FedAdagrad",
    "FedAdam",
    "FedAdp",
    "FedAvg",
    "FedAvgM",
    "FedCav",
    "FedDRL",
    "FedDyn",
    "FedFA",
    "FedFV",
    "FedLC",
    "FedNTD",
    "FedNova",
    "FedProx",
    "FedRS",
    "FedYogi",
    "Finished",
    "LocalClient",
    "LocalView",
    "Method",
    "Penalty",
    "Prepared",
    "Reply",
    "SecondsOf",
    "ServerRound",
    "ServerState",
    "SingleSet",
    "Slopes",
    "Step",
    "Training",
    "Weighing",
    "label_of",
    "weighted_models",
]
