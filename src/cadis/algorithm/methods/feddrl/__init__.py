"""FedDRL: aggregation weights learned by reinforcement."""

from cadis.algorithm.methods.feddrl.method import FedDRL

__all__ = [
    "FedDRL",
]
