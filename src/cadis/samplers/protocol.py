"""What a sampler is: it says who takes part in a round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch

from cadis.core import ClientId, ClientUpdate, TensorState


@dataclass(frozen=True)
class SamplerRound:
    """What is known before a round.

    Attributes:
        number: the round, from 1.
        available: the clients that are there, always in the same order.
        wanted: k, how many are to take part; no more than there are.
        generator: the round's source of randomness.
        method_memory: what the method remembers on the server, e.g. CADIS's similarity matrix.
    """

    number: int
    available: Sequence[ClientId]
    wanted: int
    generator: torch.Generator
    method_memory: TensorState


class Sampler(Protocol):
    """Says who takes part. State goes in and comes out; it is part of the checkpoint.

    Attributes:
        name: as users type it.
    """

    name: ClassVar[str]

    def choose(self, server_round: SamplerRound, memory: TensorState) -> Sequence[ClientId]:
        """The participants: ``wanted`` of the available clients, each once."""

    def learn(
        self, updates: Sequence[ClientUpdate], report: TensorState, memory: TensorState
    ) -> TensorState:
        """What to remember for the next round.

        Args:
            updates: what came of those chosen.
            report: what the method told about the round.
            memory: what was remembered before.
        """
