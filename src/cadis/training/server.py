"""The server's half of a round, the same whoever runs it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low

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
        count_limit: how many times the median of a round's counts of samples a client may count
            for, where counts are what clients say; None where they were counted here.
    """

    method: Method
    head: tuple[slice, ...]
    num_clients: int
    seed: int
    true_clusters: Mapping[ClientId, int] | None = None
    count_limit: float | None = None

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
        limited = limited_counts([update.num_examples for update in updates], self.count_limit)
        counted = [
            replace(update, num_examples=count)
            for update, count in zip(updates, limited, strict=True)
        ]
        aggregation = self.method.aggregate(server_round, counted, method_state)
        if not aggregation.state.is_finite():
            raise RunError(diverged(number, "the global model"))
        return aggregation


def limited_counts(counts: Sequence[int], limit: float | None) -> list[int]:
    """What counts of samples are taken for: so many times their median, at the most.

    Of an even number of counts, the lower of the middle two is the median, so that of two clients
    neither can outweigh the other beyond the limit.
    """
    if limit is None or not counts:
        return list(counts)
    most = limit * median_low(counts)
    return [count if count <= most else int(most) for count in counts]


def diverged(number: int, what: str) -> str:
    """What to tell the user."""
    return f"Round {number}: {what} became infinite or not a number; try a smaller learning rate."
