"""FedAvg (McMahan et al., 2017): the mean of the clients' models, by number of samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cadis.core import example_weights, mean_state
from cadis.methods.protocol import (
    Aggregation,
    ClientDefaults,
    ClientUpdate,
    ServerRound,
    TensorState,
)


@dataclass(frozen=True)
class FedAvg(ClientDefaults):
    """Plain local SGD; weights n_i / N over the participants."""

    name: ClassVar[str] = "fedavg"

    def aggregate(
        self,
        server_round: ServerRound,  # noqa: ARG002
        updates: Sequence[ClientUpdate],
        state: TensorState,
    ) -> Aggregation:
        """Average by number of samples."""
        return average_by_examples(updates, state)


def average_by_examples(updates: Sequence[ClientUpdate], state: TensorState) -> Aggregation:
    """FedAvg's server half, which other methods share; the memory is handed on as it is."""
    weights = example_weights([update.num_examples for update in updates])
    return Aggregation(mean_state([update.state for update in updates], weights), state, weights)
