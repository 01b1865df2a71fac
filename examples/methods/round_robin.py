"""Everybody takes part in turn: those whose last turn is longest ago come next.

Try it:  cadis run --sampler examples/methods/round_robin.py:RoundRobin
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cadis.algorithm.samplers import BaseSampler, SampledRound, SamplerRound
from cadis.types import ClientId, TensorState, ids_from_tensor, ids_to_tensor


@dataclass(frozen=True)
class RoundRobin(BaseSampler):
    """The clients that wait longest; it remembers in which order they had their last turns."""

    name: ClassVar[str] = "round-robin"

    def choose(self, server_round: SamplerRound, memory: TensorState) -> Sequence[ClientId]:
        """As many as are wanted; those who never took part come first."""
        place = {client: number for number, client in enumerate(_in_order(memory))}
        waiting = sorted(server_round.available, key=lambda client: place.get(client, -1))
        return waiting[: server_round.wanted]

    def learn(self, sampled: SampledRound, memory: TensorState) -> TensorState:
        """Whoever took part goes to the end; whoever did not answer stays where it is."""
        now = [update.client_id for update in sampled.updates]
        others = [client for client in _in_order(memory) if client not in now]
        return {"clients": ids_to_tensor([*others, *now])}


def _in_order(memory: TensorState) -> Sequence[ClientId]:
    """Everybody who ever took part, beginning with the one whose last turn is longest ago."""
    return ids_from_tensor(memory["clients"]) if memory else ()
