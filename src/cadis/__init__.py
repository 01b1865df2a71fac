"""Federated learning for clients that come in clusters of unequal size.

``cadis.run`` trains a model of yours on a federation of yours, ``cadis.compare`` compares methods,
and ``cadis.load`` makes a trained model predict; the methods are ``cadis.CADIS`` and its peers, and
``cadis.Algorithm`` says which parts compose with every method. The commands ``cadis run``,
``cadis compare`` and ``cadis predict`` do the same from options.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cadis.algorithm import Algorithm
    from cadis.algorithm.methods import (
        CADIS,
        CFL,
        FLHC,
        IFCA,
        MOON,
        SCAFFOLD,
        BalanceFL,
        CADISClusters,
        CADISPaper,
        FedAdagrad,
        FedAdam,
        FedAdp,
        FedAT,
        FedAvg,
        FedAvgM,
        FedCav,
        FedDRL,
        FedDyn,
        FedFA,
        FedFV,
        FedLC,
        FedNova,
        FedNTD,
        FedProx,
        FedRS,
        FedYogi,
        SingleSet,
    )
    from cadis.errors import CadisError, RunError
    from cadis.experiment import RunResult
    from cadis.experiment.compare_methods import ComparisonResult, compare
    from cadis.experiment.run_federation import run
    from cadis.inference import Prediction, Predictor, load

__all__ = [
    "CADIS",
    "CFL",
    "FLHC",
    "IFCA",
    "MOON",
    "SCAFFOLD",
    "Algorithm",
    "BalanceFL",
    "CADISClusters",
    "CADISPaper",
    "CadisError",
    "ComparisonResult",
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
    "Prediction",
    "Predictor",
    "RunError",
    "RunResult",
    "SingleSet",
    "compare",
    "load",
    "run",
]

_HOMES = {
    "algorithm": ("Algorithm",),
    "errors": ("CadisError", "RunError"),
    "experiment": ("ComparisonResult", "RunResult", "compare", "run"),
    "inference": ("Prediction", "Predictor", "load"),
}
"""Where names are from that are no methods."""

__version__: str


def __dir__() -> list[str]:
    return [*__all__, "__version__", *_modules()]


def __getattr__(name: str) -> object:
    """Import on first use: ``cadis --help`` need not wait for torch."""
    if name == "__version__":
        return str(import_module("importlib.metadata").version("cadis"))
    if name in __all__:
        home = next((home for home, names in _HOMES.items() if name in names), "algorithm.methods")
        return getattr(import_module(f"cadis.{home}"), name)
    if name not in _modules():
        raise AttributeError(f"module 'cadis' has no attribute '{name}'")
    return import_module(f"cadis.{name}")


def _modules() -> list[str]:
    """The packages and modules in here."""
    listed = import_module("pkgutil").iter_modules(__path__)
    return [found.name for found in listed if not found.name.startswith("_")]
