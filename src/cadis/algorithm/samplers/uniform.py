"""Everybody is as likely to take part as everybody else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from cadis.algorithm.about import About
from cadis.algorithm.samplers.protocol import BaseSampler, SamplerRound
from cadis.types import ClientId, TensorState


@dataclass(frozen=True)
class Uniform(BaseSampler):
    """k of n without replacement, in the order of the clients."""

    name: ClassVar[str] = "uniform"
    about: ClassVar[About] = About(kind="who takes part", paper="McMahan et al., 2017")

    def choose(
        self,
        server_round: SamplerRound,
        memory: TensorState,  # noqa: ARG002
    ) -> Sequence[ClientId]:
        """Draw the participants."""
        clients = server_round.available
        order = torch.randperm(len(clients), generator=server_round.generator)
        return [clients[place] for place in sorted(order[: server_round.wanted].tolist())]
