"""Federated learning for clients in clusters of unequal size.

``cadis.run`` trains your model on the data of your clients, ``cadis.compare`` compares methods, and
``cadis.load`` loads a trained model for prediction. ``cadis.CADIS``, ``cadis.FedAvg`` and the other
capitalized names are methods; ``cadis.Algorithm`` combines a method with a sampler, optimizers and
transforms. The commands ``cadis run``, ``cadis compare`` and ``cadis predict`` do the same from the
command line.
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

_MODULES = {
    "algorithm": ("Algorithm",),
    "errors": ("CadisError", "RunError"),
    "experiment": ("ComparisonResult", "RunResult", "compare", "run"),
    "inference": ("Prediction", "Predictor", "load"),
}
"""The public names that are not methods, by the module that defines them."""

__version__: str


def __dir__() -> list[str]:
    return [*__all__, "__version__", *_list_submodules()]


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that ``cadis --help`` does not import torch."""
    if name == "__version__":
        return str(import_module("importlib.metadata").version("cadis"))
    if name in __all__:
        owners = (module for module, names in _MODULES.items() if name in names)
        return getattr(import_module(f"cadis.{next(owners, 'algorithm.methods')}"), name)
    if name not in _list_submodules():
        raise AttributeError(f"module 'cadis' has no attribute '{name}'")
    return import_module(f"cadis.{name}")


def _list_submodules() -> list[str]:
    submodules = import_module("pkgutil").iter_modules(__path__)
    return [module.name for module in submodules if not module.name.startswith("_")]
