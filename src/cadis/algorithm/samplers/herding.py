"""Herding: participants whose data were used least in recent rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le, Lt
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.samplers.base import (
    BaseSampler,
    SamplerFeedback,
    SamplerRound,
    read_client_rows,
)
from cadis.algorithm.vectors import compute_kernel
from cadis.types import ClientId, TensorState, ids_to_tensor

_MAX_CANDIDATES = 2048
_MIN_TURNS = 1e-3


@dataclass(frozen=True)
class Herding(BaseSampler):
    """Choose clients that are least similar to the participants of recent rounds.

    Attributes:
        newcomers: maximum fraction of the participants without a known profile.
        memory: factor by which past turns count less with every round.
        waiting: bonus of a client that did not take part for n / k rounds.
        jitter: maximum of the random number that is added to the score of a client.
    """

    name: ClassVar[str] = "herding"
    about: ClassVar[About] = About("client selection")
    newcomers: Annotated[float, Ge(0), Le(1)] = 0.5
    memory: Annotated[float, Ge(0), Lt(1)] = 0.7
    waiting: Annotated[float, Ge(0)] = 0.3
    jitter: Annotated[float, Ge(0)] = 0.05

    def choose(self, server_round: SamplerRound, state: TensorState) -> Sequence[ClientId]:
        clients, k = server_round.available, server_round.num_participants
        generator = server_round.generator
        profiles = server_round.client_profiles(clients)
        is_known = (profiles != 0).any(dim=1)
        order = torch.randperm(len(clients), generator=generator)
        newcomers = order[~is_known[order]][: self._count_newcomers(server_round, is_known)]
        candidates = order[is_known[order]][: max(_MAX_CANDIDATES, k)]
        rows = read_client_rows(state, "turns", "last")
        scores = self._score(candidates, profiles, server_round, rows)
        scores += self.jitter * torch.rand(len(scores), generator=generator)
        chosen = newcomers.tolist()
        units = profiles[candidates]
        for _ in range(min(k - len(chosen), len(candidates))):
            best = int(scores.argmin())
            chosen.append(int(candidates[best]))
            scores += compute_kernel(units, units[best : best + 1])[:, 0]
            scores[best] = torch.inf
        taken = torch.tensor(chosen, dtype=torch.int64)
        rest = order[~torch.isin(order, taken)][: k - len(chosen)]
        return server_round.select_clients(torch.cat([taken, rest]))

    def _score(self, candidates, profiles, server_round, rows) -> Tensor:
        clients = server_round.available
        ids = [clients[i] for i in candidates.tolist()]
        recent = {c: turns for c, (turns, _) in rows.items() if turns > _MIN_TURNS}
        scores = torch.zeros(len(ids))
        if recent:
            others = server_round.client_profiles(list(recent))
            turns = torch.tensor(list(recent.values()))
            scores = compute_kernel(profiles[candidates], others) @ turns
        last = torch.tensor([rows[c][1] if c in rows else 0 for c in ids])
        wait = server_round.number - 1 - last
        return scores - self.waiting * wait * server_round.num_participants / len(clients)

    def _count_newcomers(self, server_round: SamplerRound, is_known: Tensor) -> int:
        num_participants = server_round.num_participants
        unknown = 1 - float(is_known.float().mean())
        if unknown == 1:
            return num_participants
        draws = torch.rand(num_participants, generator=server_round.generator)
        return min(int((draws < unknown).sum()), round(self.newcomers * num_participants))

    def learn(self, feedback: SamplerFeedback, state: TensorState) -> TensorState:
        rows = {
            client: (turns * self.memory, last)
            for client, (turns, last) in read_client_rows(state, "turns", "last").items()
        }
        for update in feedback.updates:
            turns = rows.get(update.client_id, (0.0, 0))[0]
            rows[update.client_id] = turns + 1, feedback.number
        turns, last = zip(*rows.values(), strict=True)
        return {
            "clients": ids_to_tensor(list(rows)),
            "turns": torch.tensor(turns),
            "last": torch.tensor(last),
        }
