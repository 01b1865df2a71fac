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
    BaseSampler,
    SamplerFeedback,
    SamplerRound,
    draw_newcomers,
    read_client_rows,
)
from cadis.algorithm.vectors import compute_kernel
from cadis.types import (
    ClientId,
    TensorState,
    compute_client_keys,
    ids_from_tensor,
    ids_to_tensor,
)

_MAX_CANDIDATES = 2048  # if more clients are available, only a random subset can be chosen
_JITTER = 0.05  # upper limit of the random number that is added to the score of each client
_LAST = 1e9  # larger than any score
_FORGOTTEN_TURNS = 1e-3  # a past participant with fewer turns is no longer compared


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
        newcomers: maximum fraction of participants without a known class profile, such as new
            clients.
        memory: decay of past participations: in each round, the number of times that a client was
            chosen so far is multiplied by this factor.
        waiting: bonus for clients that were not chosen for long. A client that has waited n / k
            rounds (n clients, k participants) gets this value, where 1 makes up for one recent
            participation of a client with the same data; with 0, some clients may wait very long.
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

    def choose(self, server_round: SamplerRound, state: TensorState) -> Sequence[ClientId]:
        """Draw newcomers, then choose clients one by one by their scores."""
        available, count = server_round.available, server_round.num_participants
        order = torch.randperm(len(available), generator=server_round.generator)
        clients = [available[i] for i in order[: max(_MAX_CANDIDATES, count)]]
        profiles = server_round.client_profiles(clients)
        is_new, rows = (profiles == 0).all(dim=1), torch.arange(len(clients))
        newcomers = draw_newcomers(rows, is_new, self.newcomers, server_round)
        scores = self._compute_scores(clients, profiles, server_round, state)
        scores += _JITTER * torch.rand(len(scores), generator=server_round.generator)
        scores[is_new] = _LAST  # further newcomers take part only if there are not enough others
        scores[newcomers] = -_LAST
        chosen = choose_one_by_one(scores, profiles, count)
        return server_round.select_clients(order[chosen])

    def _compute_scores(
        self,
        clients: Sequence[ClientId],
        profiles: Tensor,
        server_round: SamplerRound,
        state: TensorState,
    ) -> Tensor:
        """Return the score of each client before the first seat of the round, (m,)."""
        last_rounds = torch.zeros(len(clients))
        turns = torch.zeros(len(clients))
        if state:
            keys = compute_client_keys(clients)
            rows = torch.searchsorted(state["keys"], keys).clamp(max=len(state["keys"]) - 1)
            is_known = state["keys"][rows] == keys
            last_rounds = torch.where(is_known, state["last_round"][rows], 0)
            recent = server_round.client_profiles(ids_from_tensor(state["clients"]))
            turns = compute_kernel(profiles, recent) @ state["turns"]
        waits = (server_round.number - 1 - last_rounds) / len(server_round.available)
        return turns - self.waiting * server_round.num_participants * waits

    def learn(self, feedback: SamplerFeedback, state: TensorState) -> TensorState:
        """Count the turns of the participants, also of those that sent no valid update."""
        before = read_client_rows(state, "turns")
        turns = {client: turns * self.memory for client, (turns,) in before.items()}
        turns |= {client: turns.get(client, 0.0) + 1 for client in feedback.participants}
        turns = {client: value for client, value in turns.items() if value > _FORGOTTEN_TURNS}
        keys = compute_client_keys(feedback.participants)
        last_round = torch.full((len(keys),), feedback.number)
        if state:
            others = ~torch.isin(state["keys"], keys)
            keys = torch.cat([state["keys"][others], keys])
            last_round = torch.cat([state["last_round"][others], last_round])
        order = keys.argsort()
        return {
            "clients": ids_to_tensor(list(turns)),
            "turns": torch.tensor(list(turns.values())),
            "keys": keys[order],
            "last_round": last_round[order],
        }


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
