"""Power of choice: clients with a high training loss are chosen."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
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
    """Draw candidates at random, and choose the candidates with the highest training loss.

    The probability of a candidate is proportional to its number of samples. Its training loss is
    the mean loss in the last round in which it took part. The loss of a client that never took part
    counts as infinite, so that each client is chosen at some point. The number of candidates is at
    least the number of participants, and at most the number of available clients.

    This is the variant rpow-d of the paper. It does not use the loss of the current model, which
    all candidates would have to compute.

    Departure from the paper: the server knows the number of samples only for clients that took
    part. It uses the mean of the known numbers for all other clients.

    Attributes:
        candidates: number of clients drawn at random, of which those with the highest training loss
            take part; "auto" is twice the number of participants.
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
        """Draw the candidates, and return the candidates with the highest last loss."""
        clients, num_participants = server_round.available, server_round.num_participants
        known = read_client_rows(state, "losses", "sizes")
        count = 2 * num_participants if self.candidates == "auto" else self.candidates
        count = min(max(count, num_participants), len(clients))
        log_sizes = _estimate_sizes(clients, known).log()
        candidates = draw_without_replacement(log_sizes, count, server_round.generator).tolist()
        candidates.sort(key=lambda index: -known.get(clients[index], (inf, 0))[0])
        return server_round.select_clients(torch.tensor(candidates[:num_participants]))

    def learn(self, feedback: SamplerFeedback, state: TensorState) -> TensorState:
        """Store the training loss, if it is finite, and the number of samples of participants."""
        reported = {
            update.client_id: (update.scalars["train_loss"], update.num_samples)
            for update in feedback.updates
            if isfinite(update.scalars.get("train_loss", inf))  # NaN has no rank
        }
        known = read_client_rows(state, "losses", "sizes") | reported
        losses, sizes = zip(*known.values(), strict=True) if known else ((), ())
        return {
            "clients": ids_to_tensor(list(known)),
            "losses": torch.tensor(losses, dtype=torch.float64),
            "sizes": torch.tensor(sizes, dtype=torch.int64),
        }


def _estimate_sizes(clients: Sequence[ClientId], known: dict[ClientId, tuple[Any, ...]]) -> Tensor:
    """Return the number of samples of each client, (n,); the mean if it is not known."""
    known_sizes = [size for _, size in known.values()]
    mean = sum(known_sizes) / len(known_sizes) if known_sizes else 1.0
    sizes = [known[client][1] if client in known else mean for client in clients]
    return torch.tensor(sizes, dtype=torch.float64).clamp(min=1)
