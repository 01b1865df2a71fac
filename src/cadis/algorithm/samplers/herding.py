"""Herding: participants that differ from each other and from the recent participants.

Herding chooses samples one by one so that their mean stays close to the mean of a distribution
(Max Welling: Herding Dynamical Weights to Learn. ICML 2009). Here the distribution is even over the
kinds of data that clients have, not over clients: a hundred similar clients count as one.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.samplers.turns import TurnSampler
from cadis.algorithm.vectors import compute_kernel


@dataclass(frozen=True)
class Herding(TurnSampler):
    """Choose clients whose data differ from the data of recent participants.

    Participants are chosen one by one. The next one is the client i with the smallest
    ``sum_j kappa_ij c_j - waiting * r_i * k / n + u_i``. The sum is over all clients j that took
    part in recent rounds or are already chosen for this round. ``kappa_ij = max(0, cosine)^2`` is
    the similarity of the class profiles of clients i and j. c_j counts how often client j was
    chosen, and is multiplied by ``memory`` after each round. r_i is the number of rounds since
    client i was chosen, n the number of clients, k the number of participants, and u_i a small
    random number. So each kind of data takes part about equally often, even if most clients have
    the same kind. Nothing depends on a decision about clusters.

    Attributes:
        newcomers: maximum fraction of participants without a known class profile, such as new
            clients.
        memory: decay of past participations: in each round, the number of times that a client was
            chosen so far is multiplied by this factor.
        waiting: bonus for waiting, which grows with each round that a client is not chosen. After
            n / k rounds (n clients, k participants) it equals this value; 1 makes up for one recent
            participation of a client with the same data. With 0, some clients may wait very long.
    """

    name: ClassVar[str] = "herding"
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

    def select(
        self, profiles: Tensor, recent: Tensor, turns: Tensor, bonus: Tensor, count: int
    ) -> Tensor:
        """Choose the clients with the smallest scores, one by one."""
        return choose_one_by_one(compute_kernel(profiles, recent) @ turns - bonus, profiles, count)


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
