"""Server optimisers: from the aggregated model to the next. They import only the core."""

from cadis.server_optimizers.plain import Plain
from cadis.server_optimizers.protocol import ServerOptimizer

SERVER_OPTIMIZERS: dict[str, type[ServerOptimizer]] = {
    optimizer.name: optimizer for optimizer in (Plain,)
}

__all__ = ["SERVER_OPTIMIZERS", "Plain", "ServerOptimizer"]
