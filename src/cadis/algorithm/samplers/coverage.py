"""Coverage: participants whose samples together have all classes in equal shares.

The idea is from FedEntOpt, where each client sends its label counts. Here nothing is sent: the
label shares of a client are estimated from its class profile.
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
from cadis.algorithm.vectors import normalize
from cadis.types import ClientId, TensorState

_SHARPNESS = 2.0  # factor of standardized profiles in the softmax
_NORM_POWER = 4  # power of the norm of a mean profile in the softmax


@dataclass(frozen=True)
class Coverage(BaseSampler):
    """Choose clients so that the participants together have even label shares.

    Participants are chosen one by one. Let L be the sum of the label shares of all past and present
    participants, where the turns of a client fade from round to round. The next participant is the
    client i with the largest ``N H((L + s_i) / N) + waiting * r_i * k / n + u_i``, where s_i are
    the label shares of client i, H is the entropy, N is the sum of L + s_i, r_i is the number of
    rounds since client i was chosen, and u_i is a small random number. The first term is larger by
    ``-log(L_c / N)``, about, for a client that has only samples of class c.

    Departure from the paper: clients do not send their label counts, which are private; their label
    shares are estimated from class profiles (:func:`estimate_label_shares`). All clients count
    equally, whatever their number of samples. The paper excludes clients that were chosen recently;
    here past turns and a bonus for waiting clients have this effect.

    Attributes:
        newcomers: maximum fraction of participants without a known profile, such as new clients.
        memory: factor by which the past turns of a client count less in each round.
        waiting: bonus for a client that was not chosen for n / k rounds, in nats; 0 may ignore some
            clients for long.
        jitter: upper limit of the random number that is added to the score of each client.
    """

    name: ClassVar[str] = "coverage"
    needs_profiles: ClassVar[bool] = True
    about: ClassVar[About] = About(
        "client selection",
        Paper(
            title="Optimizing Federated Learning by Entropy-Based Client Selection",
            authors="Andreas Lutz, Gabriele Steidl, Karsten Müller, Wojciech Samek",
            venue="arXiv",
            year=2024,
            link="https://arxiv.org/abs/2411.01240",
        ),
        server_state="two numbers per client",
    )
    newcomers: Annotated[float, Ge(0), Le(1)] = 0.5
    memory: Annotated[float, Ge(0), Lt(1)] = 0.7
    waiting: Annotated[float, Ge(0)] = 0.1
    jitter: Annotated[float, Ge(0)] = 0.05

    def choose(self, server_round: SamplerRound, state: TensorState) -> Sequence[ClientId]:
        """Draw newcomers, then choose clients one by one by the entropy of the label shares."""
        clients, count = server_round.available, server_round.num_participants
        profiles = server_round.client_profiles(clients)
        is_new = (profiles == 0).all(dim=1)
        order = torch.randperm(len(clients), generator=server_round.generator)
        newcomers = draw_newcomers(order, is_new, self.newcomers, server_round)
        candidates = order[~is_new[order]][: max(MAX_CANDIDATES, count)]
        waits = compute_waits([clients[i] for i in candidates], server_round, state)
        bonus = self.waiting * waits
        bonus += self.jitter * torch.rand(len(bonus), generator=server_round.generator)
        best = choose_most_even(
            sum_label_shares(server_round, state, profiles.shape[1]),
            estimate_label_shares(profiles[candidates]),
            bonus,
            count - len(newcomers),
        )
        chosen = torch.cat([newcomers, candidates[best]])
        rest = order[~torch.isin(order, chosen)][: count - len(chosen)]
        return server_round.select_clients(torch.cat([chosen, rest]))

    def learn(self, feedback: SamplerFeedback, state: TensorState) -> TensorState:
        """Count the turns of the participants, also of those that sent no valid update."""
        return count_turns(feedback, state, self.memory)


def estimate_label_shares(profiles: Tensor) -> Tensor:
    """Estimate the fraction of each class among a client's samples from its mean class profile.

    The shares are ``softmax(2 ||p||^4 z)``, where z is the profile p, scaled to variance 1. A mean
    of profiles that differ from round to round has a norm below 1, so that the shares of a client
    without a clear label skew become more even. The two constants were chosen on simulated
    federations whose label shares are known.

    Args:
        profiles: mean profiles, centered and of norm at most 1, (n, classes).

    Returns:
        Label shares, (n, classes), float64; even for a profile of zeros.
    """
    profiles = profiles.double()
    norms = torch.linalg.vector_norm(profiles, dim=1, keepdim=True).clamp(max=1)
    standardized = normalize(profiles) * profiles.shape[1] ** 0.5
    shares: Tensor = (_SHARPNESS * norms**_NORM_POWER * standardized).softmax(dim=1)
    return shares


def sum_label_shares(server_round: SamplerRound, state: TensorState, num_classes: int) -> Tensor:
    """Return the sum of the label shares of past participants times their turns, (classes,).

    Args:
        server_round: facts about the round.
        state: turns of the clients; clients without a known profile do not count.
        num_classes: number of classes.
    """
    rows = read_client_rows(state, "turns")
    turns = {client: turns for client, (turns,) in rows.items() if turns > FORGOTTEN_TURNS}
    if not turns:
        return torch.zeros(num_classes, dtype=torch.float64)
    profiles = server_round.client_profiles(list(turns))
    known = (profiles != 0).any(dim=1)
    weights = torch.tensor(list(turns.values()), dtype=torch.float64) * known
    return weights @ estimate_label_shares(profiles)


def choose_most_even(total: Tensor, shares: Tensor, bonus: Tensor, count: int) -> Tensor:
    """Choose the client with the largest score, add its label shares to the total, and repeat.

    The score of client i is ``N H((total + s_i) / N) + bonus_i``, where s_i are its label shares, H
    is the entropy in nats, and N is the sum of ``total + s_i``.

    Args:
        total: L, sum of the label shares of the past participants, (classes,).
        shares: label shares of m clients, (m, classes).
        bonus: added to the scores, (m,).
        count: number of clients to choose; at most all.

    Returns:
        Indices of the chosen clients, (min(count, m),).
    """
    bonus, chosen = bonus.clone(), []
    for _ in range(min(count, len(bonus))):
        sums = total + shares
        entropies = sums.sum(dim=1).log() * sums.sum(dim=1) - torch.xlogy(sums, sums).sum(dim=1)
        best = int((entropies + bonus).argmax())
        chosen.append(best)
        total = sums[best]
        bonus[best] = -torch.inf
    return torch.tensor(chosen, dtype=torch.int64)
