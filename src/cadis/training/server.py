"""The server's half of a round, the same whoever runs it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cadis.core import ClientId, ModelState, RunError, generator_for
from cadis.methods import Aggregation, ClientUpdate, Method, ServerRound, TensorState


@dataclass(frozen=True)
class ServerHalf:
    """What a server knows in every round.

    Attributes:
        method: how the federation learns.
        head: where the classifier layer lies among the model's parameters.
        num_clients: n, all clients of the federation.
        seed: of everything random.
        true_clusters: who really belongs together, where that is known.
    """

    method: Method
    head: tuple[slice, ...]
    num_clients: int
    seed: int
    true_clusters: Mapping[ClientId, int] | None = None

    def aggregate(
        self,
        number: int,
        sent: ModelState,
        updates: Sequence[ClientUpdate],
        method_state: TensorState,
    ) -> Aggregation:
        """The new global model from finite updates, at least one; it must be finite, too."""
        server_round = ServerRound(
            number=number,
            sent=sent,
            head=self.head,
            num_clients=self.num_clients,
            generator=generator_for(self.seed, "aggregate", number),
            true_clusters=self.true_clusters,
        )
        aggregation = self.method.aggregate(server_round, updates, method_state)
        if not aggregation.state.is_finite():
            raise RunError(diverged(number, "the global model"))
        return aggregation


def diverged(number: int, what: str) -> str:
    """What to tell the user."""
    return f"Round {number}: {what} became infinite or not a number; try a smaller learning rate."
