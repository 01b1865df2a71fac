"""A strategy for each method, with the name of its class."""

from collections.abc import Callable
from typing import Any

from cadis.algorithm import Algorithm, check_names, get_field_names, validate
from cadis.algorithm.methods import METHODS
from cadis.flower.strategy import MethodStrategy
from cadis.flower.strategy_settings import StrategySettings

STRATEGY_METHODS = {
    kind.__name__: kind for kind in METHODS.values() if not (kind.pools_clients or kind.needs_clock)
}
"""Methods that have a strategy, by the name of the class."""


def make_strategy_function(name: str) -> Callable[..., MethodStrategy]:
    """Return a function that creates the strategy of the method class ``name``."""
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
    return strategy
