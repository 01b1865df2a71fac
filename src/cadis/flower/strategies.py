"""Strategies by the names of methods, for those who have a Flower app already."""

from collections.abc import Callable
from functools import cache
from typing import Any

from cadis.algorithm import Algorithm, check_names, names_of, validated
from cadis.algorithm.methods import METHODS
from cadis.flower.strategy import MethodStrategy
from cadis.flower.strategy_settings import StrategySettings

_PARTS = [name for name in names_of(Algorithm) if name != "method"]

READY_MADE = {
    kind.__name__: kind for kind in METHODS.values() if not (kind.pools_clients or kind.needs_clock)
}
"""The methods that there are strategies of, by the names of their classes."""


@cache
def ready_made(name: str) -> Callable[..., MethodStrategy]:
    """A strategy that runs the method whose class has this name."""
    kind = READY_MADE[name]

    def strategy(**options: Any) -> MethodStrategy:
        own = names_of(kind)
        check_names("option", options, [*own, *_PARTS, *names_of(StrategySettings)])
        parameters = {name: value for name, value in options.items() if name in own}
        settings = {name: value for name, value in options.items() if name not in own}
        return MethodStrategy(validated(kind, parameters), **settings)

    strategy.__name__ = strategy.__qualname__ = name
    strategy.__doc__ = (
        f"A strategy that runs :class:`cadis.{name}`: its parameters, the other parts of "
        "an algorithm, and those of :class:`StrategySettings`, by name."
    )
    return strategy
