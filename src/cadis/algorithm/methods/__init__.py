"""Federated learning methods, one file per method with its client code and its server code."""

from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.methods.balancefl import BalanceFL
from cadis.algorithm.methods.cadis import CADIS, CADISPaper
from cadis.algorithm.methods.clustered.cadis_clusters import CADISClusters
from cadis.algorithm.methods.clustered.cfl import CFL
from cadis.algorithm.methods.clustered.flhc import FLHC
from cadis.algorithm.methods.clustered.ifca import IFCA
from cadis.algorithm.methods.fedadp import FedAdp
from cadis.algorithm.methods.fedat import FedAT
from cadis.algorithm.methods.fedavg import FedAvg
from cadis.algorithm.methods.fedcav import FedCav
from cadis.algorithm.methods.feddrl.method import FedDRL
from cadis.algorithm.methods.feddyn import FedDyn
from cadis.algorithm.methods.fedfa import FedFA
from cadis.algorithm.methods.fedfv import FedFV
from cadis.algorithm.methods.fedlc import FedLC
from cadis.algorithm.methods.fednova import FedNova
from cadis.algorithm.methods.fedntd import FedNTD
from cadis.algorithm.methods.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from cadis.algorithm.methods.fedprox import FedProx
from cadis.algorithm.methods.fedrs import FedRS
from cadis.algorithm.methods.moon import MOON
from cadis.algorithm.methods.scaffold import SCAFFOLD
from cadis.algorithm.methods.singleset import SingleSet

_CLASSES: tuple[type[BaseMethod], ...] = (
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

METHODS: dict[str, type[BaseMethod]] = {method.name: method for method in _CLASSES}
"""All methods by name. The order sets the color of each method in figures: append new methods."""


def get_method_label(name: str) -> str:
    """Return the name of a method for tables and figures; an unknown name is returned unchanged."""
    method = METHODS.get(name)
    return (method.label or method.__name__) if method else name


__all__ = [
    "CADIS",
    "CFL",
    "FLHC",
    "IFCA",
    "METHODS",
    "MOON",
    "SCAFFOLD",
    "BalanceFL",
    "CADISClusters",
    "CADISPaper",
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
    "SingleSet",
    "get_method_label",
]
