"""The same methods on Flower: simulation and real deployments. Only this package imports flwr.

Besides the names below, there is a strategy for every method, by the name of its class:
``cadis.flower.CADIS(...)``, ``cadis.flower.SCAFFOLD(...)``.
"""

from collections.abc import Callable
from typing import Any

from cadis.errors import CadisError

try:
    import flwr
except ImportError:
    raise CadisError("Install Flower first: pip install 'cadis[flower]'.") from None

from cadis.algorithm import Algorithm, check_names, names_of, validated
from cadis.algorithm.methods import METHODS
from cadis.flower.client import introduce, local_evaluate, local_train
from cadis.flower.evaluation import server_test
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

READY_MADE = {
    kind.__name__: kind for kind in METHODS.values() if not (kind.pools_clients or kind.needs_clock)
}
"""The methods that there are strategies of, by the names of their classes."""


def __dir__() -> list[str]:
    return [*__all__, *READY_MADE]


def __getattr__(name: str) -> Callable[..., MethodStrategy]:
    """Return a strategy that runs the method whose class has this name."""
    if name not in READY_MADE:
        raise AttributeError(f"module 'cadis.flower' has no attribute '{name}'")
    kind = READY_MADE[name]

    def strategy(**options: Any) -> MethodStrategy:
        own, parts = names_of(kind), [part for part in names_of(Algorithm) if part != "method"]
        check_names("option", options, [*own, *parts, *names_of(StrategySettings)])
        parameters = {name: value for name, value in options.items() if name in own}
        settings = {name: value for name, value in options.items() if name not in own}
        return MethodStrategy(validated(kind, parameters), **settings)

    strategy.__name__ = strategy.__qualname__ = name
    strategy.__doc__ = (
        f"A strategy that runs :class:`cadis.{name}`: its parameters, the other parts of "
        "an algorithm, and those of :class:`StrategySettings`, by name."
    )
    globals()[name] = strategy  # the same one every time
    return strategy
