"""Herding: participants that differ from each other and from the recent participants.

Herding chooses samples one by one so that their mean stays close to the mean of a distribution
(Max Welling: Herding Dynamical Weights to Learn. ICML 2009). Here the distribution is even over the
kinds of data that clients have, not over clients: a hundred similar clients count as one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le, Lt
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.samplers.base import (
    FORGOTTEN_TURNS,
    MAX_CANDIDATES,
    BaseSampler,
    SamplerFeedback,
    SamplerRound,
    compute_waits,
    count_turns,
    draw_newcomers,
    read_client_rows,
)
from cadis.algorithm.vectors import compute_kernel
from cadis.types import ClientId, TensorState


@dataclass(frozen=True)
class Herding(BaseSampler):
    """Choose clients whose data differ from the data of recent participants.

    Participants are chosen one by one. The next one is the client i with the smallest
    ``sum_j kappa_ij c_j - waiting * r_i * k / n + u_i``, where ``kappa_ij = max(0, cosine)^2`` is
    the similarity of the profiles of clients i and j, c_j is the number of turns of client j, which
    fades from round to round, r_i is the number of rounds since client i was chosen, and u_i is a
    small random number. So each kind of data gets about the same number of turns, even if most
    clients have the same kind. Nothing depends on a decision about clusters.

    Attributes:
        newcomers: maximum fraction of participants without a known profile, such as new clients.
        memory: factor by which the past turns of a client count less in each round.
        waiting: bonus for a client that was not chosen for n / k rounds, in units of one turn of a
            client with the same data; 0 may ignore clients of a large cluster for long.
        jitter: upper limit of the random number that is added to the score of each client.
    """

    name: ClassVar[str] = "herding"
    needs_profiles: ClassVar[bool] = True
    about: ClassVar[About] = About(
        "client selection",
        Paper(
            title="Herding Dynamical Weights to Learn",
            authors="Max Welling",
            venue="ICML",
            year=2009,
            link="https://doi.org/10.1145/1553374.1553517",
        ),
        server_state="two numbers per client",
    )
    newcomers: Annotated[float, Ge(0), Le(1)] = 0.5
    memory: Annotated[float, Ge(0), Lt(1)] = 0.7
    waiting: Annotated[float, Ge(0)] = 0.3
    jitter: Annotated[float, Ge(0)] = 0.05

    def choose(self, server_round: SamplerRound, state: TensorState) -> Sequence[ClientId]:
        """Draw newcomers, then choose clients one by one by their scores."""
        clients, count = server_round.available, server_round.num_participants
        profiles = server_round.client_profiles(clients)
        is_new = (profiles == 0).all(dim=1)
        order = torch.randperm(len(clients), generator=server_round.generator)
        newcomers = draw_newcomers(order, is_new, self.newcomers, server_round)
        candidates = order[~is_new[order]][: max(MAX_CANDIDATES, count)]
        scores = self._compute_scores([clients[i] for i in candidates], server_round, state)
        scores += self.jitter * torch.rand(len(scores), generator=server_round.generator)
        best = choose_one_by_one(scores, profiles[candidates], count - len(newcomers))
        chosen = torch.cat([newcomers, candidates[best]])
        rest = order[~torch.isin(order, chosen)][: count - len(chosen)]
        return server_round.select_clients(torch.cat([chosen, rest]))

    def _compute_scores(
        self, clients: Sequence[ClientId], server_round: SamplerRound, state: TensorState
    ) -> Tensor:
        """Return the score of each client before the first seat of the round, (m,)."""
        rows = read_client_rows(state, "turns")
        turns = {client: turns for client, (turns,) in rows.items() if turns > FORGOTTEN_TURNS}
        profiles = server_round.client_profiles(clients)
        kernel = compute_kernel(profiles, server_round.client_profiles(list(turns)))
        bonus = self.waiting * compute_waits(clients, server_round, state)
        return kernel @ torch.tensor(list(turns.values())) - bonus

    def learn(self, feedback: SamplerFeedback, state: TensorState) -> TensorState:
        """Count the turns of the participants, also of those that sent no valid update."""
        return count_turns(feedback, state, self.memory)


def choose_one_by_one(scores: Tensor, profiles: Tensor, count: int) -> Tensor:
    """Choose the client with the smallest score, add its similarity to all scores, and repeat.

    Args:
        scores: initial scores, (m,).
        profiles: profiles of these clients, (m, d).
        count: number of clients to choose; at most all.

    Returns:
        Indices of the chosen clients, (min(count, m),).
    """
    scores, chosen = scores.clone(), []
    for _ in range(min(count, len(scores))):
        best = int(scores.argmin())
        chosen.append(best)
        scores += compute_kernel(profiles, profiles[best : best + 1])[:, 0]
        scores[best] = torch.inf
    return torch.tensor(chosen, dtype=torch.int64)
