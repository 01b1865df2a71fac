"""A sampler that chooses the clients in turn.

Run it:  cadis run --sampler examples/methods/round_robin.py:RoundRobin
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cadis.algorithm.samplers import BaseSampler, SamplerFeedback, SamplerRound
from cadis.types import ClientId, TensorState, ids_from_tensor, ids_to_tensor


@dataclass(frozen=True)
class RoundRobin(BaseSampler):
    """Choose the clients that took part least recently.

    The state is a queue of all clients that took part, starting with the least recent participant.
    """

    name: ClassVar[str] = "round-robin"

    def choose(self, server_round: SamplerRound, state: TensorState) -> Sequence[ClientId]:
        """Return clients that never took part, then the first clients of the queue."""
        position = {client: index for index, client in enumerate(_read_queue(state))}
        queue = sorted(server_round.available, key=lambda client: position.get(client, -1))
        return queue[: server_round.num_participants]

    def learn(self, feedback: SamplerFeedback, state: TensorState) -> TensorState:
        """Move the participants to the end of the queue; only clients that replied are moved."""
        participants = [update.client_id for update in feedback.updates]
        others = [client for client in _read_queue(state) if client not in participants]
        return {"clients": ids_to_tensor([*others, *participants])}


def _read_queue(state: TensorState) -> Sequence[ClientId]:
    """Return the ids of the clients in the queue."""
    return ids_from_tensor(state["clients"]) if state else ()
