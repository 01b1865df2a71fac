"""Base class of samplers that compare clients with recent participants, and let all take turns."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le, Lt
from torch import Tensor

from cadis.algorithm.samplers.base import (
    BaseSampler,
    SamplerFeedback,
    SamplerRound,
    draw_newcomers,
    read_client_rows,
)
from cadis.types import (
    ClientId,
    TensorState,
    compute_client_keys,
    ids_from_tensor,
    ids_to_tensor,
)

_MAX_CANDIDATES = 2048  # if more clients are available, only a random subset can be chosen
_JITTER = 0.05  # upper limit of the random number that is subtracted from the bonus of each client
_BEYOND_ALL = 1e9  # larger than any score
_FORGOTTEN_TURNS = 1e-3  # a past participant with fewer turns is no longer compared


@dataclass(frozen=True)
class TurnSampler(BaseSampler):
    """Base class of samplers that choose participants one by one, by their class profiles.

    The turns of a client are the number of times that it was chosen, where older times count less.
    The state has the turns of recent participants ("clients", "turns"), and the last round of all
    clients that were ever chosen, sorted by their keys ("keys", "last_round").

    Attributes:
        newcomers: maximum fraction of participants without a known class profile, such as new
            clients.
        memory: factor by which the turns of each client are multiplied in each round.
        waiting: bonus of a client that has waited n / k rounds since it was chosen (n clients, k
            participants); it grows in proportion to the rounds.
    """

    needs_profiles: ClassVar[bool] = True
    newcomers: Annotated[float, Ge(0), Le(1)] = 0.5
    memory: Annotated[float, Ge(0), Lt(1)] = 0.7
    waiting: Annotated[float, Ge(0)] = 0.3

    @abstractmethod
    def select(
        self, profiles: Tensor, recent: Tensor, turns: Tensor, bonus: Tensor, count: int
    ) -> Tensor:
        """Choose participants one by one.

        Args:
            profiles: class profiles of the m clients to choose from, (m, d).
            recent: class profiles of recent participants, (r, d).
            turns: their turns, (r,).
            bonus: bonus of each client for waiting; clients with larger values are preferred, (m,).
            count: number of clients to choose; at most all.

        Returns:
            Indices of the chosen clients, (min(count, m),).
        """

    def choose(self, server_round: SamplerRound, state: TensorState) -> Sequence[ClientId]:
        """Draw newcomers, then choose the other participants one by one."""
        available, count = server_round.available, server_round.num_participants
        order = torch.randperm(len(available), generator=server_round.generator)
        clients = [available[i] for i in order[: max(_MAX_CANDIDATES, count)]]
        profiles = server_round.client_profiles(clients)
        is_new, rows = (profiles == 0).all(dim=1), torch.arange(len(clients))
        newcomers = draw_newcomers(rows, is_new, self.newcomers, server_round)
        bonus = self.waiting * _compute_waits(clients, server_round, state)
        bonus -= _JITTER * torch.rand(len(bonus), generator=server_round.generator)
        bonus[is_new] = -_BEYOND_ALL  # chosen last, if there are not enough other clients
        bonus[newcomers] = _BEYOND_ALL
        recent, turns = profiles[:0], torch.zeros(0)
        if state:
            recent = server_round.client_profiles(ids_from_tensor(state["clients"]))
            turns = state["turns"]
        chosen = self.select(profiles, recent, turns, bonus, count)
        return server_round.select_clients(order[chosen])

    def learn(self, feedback: SamplerFeedback, state: TensorState) -> TensorState:
        """Count the turns of the participants, also of those that sent no valid update."""
        before = read_client_rows(state, "turns")
        counts = {client: self.memory * turns for client, (turns,) in before.items()}
        counts |= {client: counts.get(client, 0.0) + 1 for client in feedback.participants}
        counts = {client: turns for client, turns in counts.items() if turns > _FORGOTTEN_TURNS}
        keys = compute_client_keys(feedback.participants)
        last_round = torch.full((len(keys),), feedback.number)
        if state:
            others = ~torch.isin(state["keys"], keys)
            keys = torch.cat([state["keys"][others], keys])
            last_round = torch.cat([state["last_round"][others], last_round])
        order = keys.argsort()
        return {
            "clients": ids_to_tensor(list(counts)),
            "turns": torch.tensor(list(counts.values())),
            "keys": keys[order],
            "last_round": last_round[order],
        }


def _compute_waits(
    clients: Sequence[ClientId], server_round: SamplerRound, state: TensorState
) -> Tensor:
    """Return the rounds since each client was chosen, in units of n / k rounds, (m,).

    Uniform sampling chooses a client once in n / k rounds on average.
    """
    last_rounds = torch.zeros(len(clients))
    if state:
        keys = compute_client_keys(clients)
        rows = torch.searchsorted(state["keys"], keys).clamp(max=len(state["keys"]) - 1)
        last_rounds = torch.where(state["keys"][rows] == keys, state["last_round"][rows], 0)
    waits = (server_round.number - 1 - last_rounds) / len(server_round.available)
    return waits * server_round.num_participants
