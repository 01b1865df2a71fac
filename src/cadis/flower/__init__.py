"""Methods of cadis on Flower, in simulations and deployments. Only this package imports flwr.

Each method also has a strategy with the name of its class, such as ``cadis.flower.CADIS(...)`` or
``cadis.flower.SCAFFOLD(...)``.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cadis.errors import CadisError

if find_spec("flwr") is None:
    raise CadisError("Install Flower first: pip install 'cadis[flower]'.")

if TYPE_CHECKING:
    from cadis.flower.client import introduce, local_evaluate, local_train
    from cadis.flower.evaluation import server_test
    from cadis.flower.strategies import STRATEGY_METHODS
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

_MODULES = {
    "MethodStrategy": "strategy",
    "STRATEGY_METHODS": "strategies",
    "StrategySettings": "strategy_settings",
    "introduce": "client",
    "local_evaluate": "client",
    "local_train": "client",
    "server_test": "evaluation",
}
"""The public names that are not strategies of methods, by the module that defines them."""


def __dir__() -> list[str]:
    return [*__all__, *import_module("cadis.flower.strategies").STRATEGY_METHODS]


def __getattr__(name: str) -> "Callable[..., MethodStrategy]":
    """Import a public name on first use, so that the gateway starts without torch."""
    module = import_module(f"cadis.flower.{_MODULES.get(name, 'strategies')}")
    if name in _MODULES:
        value = getattr(module, name)
    elif name in module.STRATEGY_METHODS:
        value = module.make_strategy_function(name)
    else:
        raise AttributeError(f"module 'cadis.flower' has no attribute '{name}'")
    globals()[name] = value  # the next access does not call this function
    return value  # type: ignore[no-any-return]
