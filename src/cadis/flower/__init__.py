"""Methods of cadis on Flower, in simulations and deployments. Only this package imports flwr.

Each method also has a strategy with the name of its class, such as ``cadis.flower.CADIS(...)`` or
``cadis.flower.SCAFFOLD(...)``.
"""

from collections.abc import Callable
from typing import Any

from cadis.errors import CadisError

try:
    import flwr
except ImportError:
    raise CadisError("Install Flower first: pip install 'cadis[flower]'.") from None

from cadis.algorithm import Algorithm, check_names, get_field_names, validate
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

STRATEGY_METHODS = {
    kind.__name__: kind for kind in METHODS.values() if not (kind.pools_clients or kind.needs_clock)
}
"""Methods that have a strategy, by the name of the class."""


def __dir__() -> list[str]:
    return [*__all__, *STRATEGY_METHODS]


def __getattr__(name: str) -> Callable[..., MethodStrategy]:
    """Return a function that creates the strategy of the method class ``name``."""
    if name not in STRATEGY_METHODS:
        raise AttributeError(f"module 'cadis.flower' has no attribute '{name}'")
    method_class = STRATEGY_METHODS[name]

    def strategy(**options: Any) -> MethodStrategy:
        method_fields = get_field_names(method_class)
        parts = [part for part in get_field_names(Algorithm) if part != "method"]
        known = [*method_fields, *parts, *get_field_names(StrategySettings)]
        check_names("option", options, known)
        parameters = {name: value for name, value in options.items() if name in method_fields}
        settings = {name: value for name, value in options.items() if name not in method_fields}
        return MethodStrategy(validate(method_class, parameters), **settings)

    strategy.__name__ = strategy.__qualname__ = name
    strategy.__doc__ = (
        f"Create a strategy that runs :class:`cadis.{name}`. Keyword arguments: parameters of the "
        "method, other parts of the algorithm, and fields of :class:`StrategySettings`."
    )
    globals()[name] = strategy  # the next access does not call this function
    return strategy
