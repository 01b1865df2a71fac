"""The same methods on Flower: simulation and real deployments. Only this package imports flwr.

Besides the names below, there is a strategy for every method, by the name of its class:
``cadis.flower.CADIS(...)``, ``cadis.flower.SCAFFOLD(...)``.
"""

from collections.abc import Callable

from cadis.errors import CadisError

try:
    import flwr  # noqa: F401
except ImportError:
    raise CadisError("Install Flower first: pip install 'cadis[flower]'.") from None

from cadis.flower.client import introduce, local_evaluate, local_train
from cadis.flower.evaluation import server_test
from cadis.flower.strategies import READY_MADE, ready_made
from cadis.flower.strategy import MethodStrategy
from cadis.flower.strategy_settings import StrategySettings

__all__ = [
    "MethodStrategy",
    "StrategySettings",
    "introduce",
    "local_evaluate",
    "local_train",
    "server_test",
]


def __dir__() -> list[str]:
    return [*__all__, *READY_MADE]


def __getattr__(name: str) -> Callable[..., MethodStrategy]:
    """The strategy of a method."""
    if name not in READY_MADE:
        raise AttributeError(f"module 'cadis.flower' has no attribute '{name}'")
    return ready_made(name)
