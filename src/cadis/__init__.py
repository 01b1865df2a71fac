"""Federated learning for clients that come in clusters of unequal size.

``cadis.run`` trains a model of yours on a federation of yours; the methods are ``cadis.CADIS``
and its peers. The command ``cadis run`` does the same from options.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cadis.core import CadisError, RunError
    from cadis.experiment import RunResult, run
    from cadis.methods import CADIS, FedAvg, FedDyn, FedFA, FedProx, SingleSet

_HOMES = {
    "CADIS": "methods",
    "CadisError": "core",
    "FedAvg": "methods",
    "FedDyn": "methods",
    "FedFA": "methods",
    "FedProx": "methods",
    "RunError": "core",
    "RunResult": "experiment",
    "SingleSet": "methods",
    "run": "experiment",
}

__all__ = [
    "CADIS",
    "CadisError",
    "FedAvg",
    "FedDyn",
    "FedFA",
    "FedProx",
    "RunError",
    "RunResult",
    "SingleSet",
    "run",
]


_PACKAGES = (
    "core",
    "data",
    "engine",
    "experiment",
    "flower",
    "methods",
    "models",
    "partition",
    "report",
    "runs",
)


def __dir__() -> list[str]:
    return [*__all__, *_PACKAGES]


def __getattr__(name: str) -> object:
    """Import on first use: ``cadis --help`` need not wait for torch."""
    if name in _PACKAGES:
        return import_module(f"cadis.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'cadis' has no attribute '{name}'")
    return getattr(import_module(f"cadis.{_HOMES[name]}"), name)
