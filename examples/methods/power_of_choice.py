"""Power of choice (Cho et al., 2020): those take part whom the model serves worst.

Try it:  cadis run --sampler examples/methods/power_of_choice.py:PowerOfChoice --candidates 15
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt

from cadis.core import ClientId, ClientUpdate, TensorState, ids_from_tensor, ids_to_tensor
from cadis.samplers import SamplerRound


@dataclass(frozen=True)
class PowerOfChoice:
    """Of some candidates, the clients whose last training loss was highest.

    Whoever was never asked counts as if its loss were infinite, so that everybody's turn comes.

    Attributes:
        candidates: d, how many clients are looked at in a round, drawn at random; at least as
            many as take part.
    """

    name: ClassVar[str] = "power-of-choice"
    candidates: Annotated[int, Gt(0)] = 20

    def choose(self, server_round: SamplerRound, memory: TensorState) -> Sequence[ClientId]:
        """The candidates with the highest last loss, in the order of the clients."""
        clients, losses = server_round.available, _losses(memory)
        order = torch.randperm(len(clients), generator=server_round.generator).tolist()
        looked_at = order[: max(self.candidates, server_round.wanted)]
        highest = sorted(looked_at, key=lambda place: -losses.get(clients[place], inf))
        return [clients[place] for place in sorted(highest[: server_round.wanted])]

    def learn(
        self,
        updates: Sequence[ClientUpdate],
        report: TensorState,  # noqa: ARG002
        memory: TensorState,
    ) -> TensorState:
        """Remember the loss of everybody who took part."""
        told = {u.client_id: u.scalars["train_loss"] for u in updates if "train_loss" in u.scalars}
        losses = _losses(memory) | told
        return {
            "clients": ids_to_tensor(list(losses)),
            "losses": torch.tensor(list(losses.values()), dtype=torch.float64),
        }


def _losses(memory: TensorState) -> dict[ClientId, float]:
    """By client, its last loss."""
    if not memory:
        return {}
    clients = ids_from_tensor(memory["clients"])
    return dict(zip(clients, memory["losses"].tolist(), strict=True))
