"""Local optimisers: how a client steps. One file an optimiser; it imports only the core."""

from cadis.algorithm.local_optimizers.protocol import LocalOptimizer
from cadis.algorithm.local_optimizers.sgd import SGD

LOCAL_OPTIMIZERS: dict[str, type[LocalOptimizer]] = {
    optimizer.name: optimizer for optimizer in (SGD,)
}

__all__ = [
    "LOCAL_OPTIMIZERS",
    "SGD",
    "LocalOptimizer",
]
