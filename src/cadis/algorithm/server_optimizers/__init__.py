"""Server optimisers: from the aggregated model to the next. They import only the core."""

from cadis.algorithm.server_optimizers.adaptive import Adagrad, Adam, Yogi
from cadis.algorithm.server_optimizers.momentum import Momentum
from cadis.algorithm.server_optimizers.plain import Plain
from cadis.algorithm.server_optimizers.protocol import ServerOptimizer

_OURS: tuple[type[ServerOptimizer], ...] = (Plain, Momentum, Adam, Yogi, Adagrad)

SERVER_OPTIMIZERS: dict[str, type[ServerOptimizer]] = {kind.name: kind for kind in _OURS}

__all__ = [
    "SERVER_OPTIMIZERS",
    "Adagrad",
    "Adam",
    "Momentum",
    "Plain",
    "ServerOptimizer",
    "Yogi",
]
