"""Power of choice: clients with a high training loss take part."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Gt
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.samplers.base import (
    BaseSampler,
    SamplerFeedback,
    SamplerRound,
    draw_without_replacement,
    read_client_rows,
)
from cadis.types import ClientId, TensorState, ids_to_tensor


@dataclass(frozen=True)
class PowerOfChoice(BaseSampler):
    """Draw candidates by their number of samples, and choose those with the highest last loss.

    A client that never took part counts as having an infinite loss, so that each client is chosen
    at some point.

    Departure: this is the variant rpow-d of the paper. It uses the mean loss of a client's last
    local training instead of the loss of the current model, which all candidates would have to
    compute. The numbers of samples are known for clients that took part; the others count as
    their mean.

    Attributes:
        candidates: d, the number of candidates in a round; "auto" is twice the number of
            participants. It is limited to the range from the number of participants to that of the
            available clients.
    """

    name: ClassVar[str] = "power-of-choice"
    about: ClassVar[About] = About(
        topic="client selection",
        paper=Paper(
            title="Client Selection in Federated Learning: Convergence Analysis and "
            "Power-of-Choice Selection Strategies",
            authors="Yae Jee Cho, Jianyu Wang, Gauri Joshi",
            venue="arXiv",
            year=2020,
            link="https://arxiv.org/abs/2010.01243",
        ),
        server_state="the loss and number of samples of each client",
    )
    candidates: Annotated[int, Gt(0)] | Literal["auto"] = "auto"

    def choose(self, server_round: SamplerRound, state: TensorState) -> Sequence[ClientId]:
        """Draw the candidates, and return those with the highest last loss."""
        clients, num_participants = server_round.available, server_round.num_participants
        known = read_client_rows(state, "losses", "sizes")
        number = 2 * num_participants if self.candidates == "auto" else self.candidates
        number = min(max(number, num_participants), len(clients))
        log_sizes = _estimate_sizes(clients, known).log()
        candidates = draw_without_replacement(log_sizes, number, server_round.generator).tolist()
        candidates.sort(key=lambda index: -known.get(clients[index], (inf, 0))[0])
        return server_round.select_clients(torch.tensor(candidates[:num_participants]))

    def learn(self, feedback: SamplerFeedback, state: TensorState) -> TensorState:
        """Store the training loss and the number of samples of the participants."""
        reported = {
            update.client_id: (update.scalars["train_loss"], update.num_samples)
            for update in feedback.updates
            if "train_loss" in update.scalars
        }
        known = read_client_rows(state, "losses", "sizes") | reported
        losses, sizes = zip(*known.values(), strict=True) if known else ((), ())
        return {
            "clients": ids_to_tensor(list(known)),
            "losses": torch.tensor(losses, dtype=torch.float64),
            "sizes": torch.tensor(sizes, dtype=torch.int64),
        }


def _estimate_sizes(clients: Sequence[ClientId], known: dict[ClientId, tuple[Any, ...]]) -> Tensor:
    """Return the number of samples of each client, or the mean of the known ones, (n,)."""
    known_sizes = [size for _, size in known.values()]
    mean = sum(known_sizes) / len(known_sizes) if known_sizes else 1.0
    sizes = [known[client][1] if client in known else mean for client in clients]
    return torch.tensor(sizes, dtype=torch.float64).clamp(min=1)
