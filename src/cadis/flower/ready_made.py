"""Strategies by name, for those who have a Flower app already."""

from collections.abc import Callable
from typing import Any

from cadis import methods
from cadis.algorithm import Algorithm
from cadis.flower.strategy import MethodStrategy
from cadis.flower.strategy_settings import StrategySettings
from cadis.methods import Method
from cadis.options import check_names, names_of, validated

_PARTS = [name for name in names_of(Algorithm) if name != "method"]


def _ready_made(kind: type[Method]) -> Callable[..., MethodStrategy]:
    def strategy(**options: Any) -> MethodStrategy:
        own = names_of(kind)
        check_names("option", options, [*own, *_PARTS, *names_of(StrategySettings)])
        parameters = {name: value for name, value in options.items() if name in own}
        settings = {name: value for name, value in options.items() if name not in own}
        return MethodStrategy(validated(kind, parameters), **settings)

    strategy.__name__ = strategy.__qualname__ = kind.__name__
    strategy.__doc__ = (
        f"A strategy that runs :class:`cadis.{kind.__name__}`: its parameters, the other parts of "
        "an algorithm, and those of :class:`StrategySettings`, by name."
    )
    return strategy


CADIS = _ready_made(methods.CADIS)
FedAvg = _ready_made(methods.FedAvg)
FedDyn = _ready_made(methods.FedDyn)
FedFA = _ready_made(methods.FedFA)
FedProx = _ready_made(methods.FedProx)
