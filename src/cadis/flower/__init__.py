"""The same methods on Flower: simulation and real deployments. Only this package imports flwr."""

from cadis.core import CadisError

try:
    import flwr  # noqa: F401
except ImportError:
    raise CadisError("Install Flower first: pip install 'cadis[flower]'.") from None

from cadis.flower.client import introduce, local_evaluate, local_train
from cadis.flower.ready_made import CADIS, FedAvg, FedDyn, FedFA, FedProx
from cadis.flower.strategy import MethodStrategy
from cadis.flower.strategy_settings import StrategySettings
from cadis.flower.testing import server_test

__all__ = [
    "CADIS",
    "FedAvg",
    "FedDyn",
    "FedFA",
    "FedProx",
    "MethodStrategy",
    "StrategySettings",
    "introduce",
    "local_evaluate",
    "local_train",
    "server_test",
]
