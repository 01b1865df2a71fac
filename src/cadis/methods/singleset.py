"""SingleSet: centralised SGD on the pooled data, the line that federations are measured by."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cadis.methods.fedavg import average_by_examples
from cadis.methods.protocol import (
    Aggregation,
    ClientDefaults,
    ClientUpdate,
    ServerRound,
    TensorState,
)


@dataclass(frozen=True)
class SingleSet(ClientDefaults):
    """A federation of one client who holds everybody's data."""

    name: ClassVar[str] = "singleset"
    pools_clients: ClassVar[bool] = True

    def aggregate(
        self,
        server_round: ServerRound,  # noqa: ARG002
        updates: Sequence[ClientUpdate],
        state: TensorState,
    ) -> Aggregation:
        """The one update is the new model."""
        return average_by_examples(updates, state)
