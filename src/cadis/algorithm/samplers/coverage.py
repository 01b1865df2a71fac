"""Coverage: participants whose samples together have all classes in equal shares.

The idea is from FedEntOpt, where each client sends its label counts. Here nothing is sent: the
label shares of a client are estimated from its class profile.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.samplers.turns import TurnSampler
from cadis.algorithm.vectors import normalize

_SHARPNESS = 2.0  # factor of standardized profiles in the softmax
_NORM_POWER = 4  # power of the norm of a mean profile in the softmax


@dataclass(frozen=True)
class Coverage(TurnSampler):
    """Choose clients so that the participants together have even label shares.

    Participants are chosen one by one. Let L be the sum of the label shares of all past and present
    participants, where older participations count less (``memory``). The next participant is the
    client i with the largest ``N H((L + s_i) / N) + waiting * r_i * k / n + u_i``, where s_i are
    the label shares of client i, H is the entropy, N is the sum of L + s_i, r_i is the number of
    rounds since client i was chosen, n the number of clients, k the number of participants, and
    u_i is a small random number. The first term is larger by
    ``-log(L_c / N)``, about, for a client that has only samples of class c.

    Departure from the paper: clients do not send their label counts, which are private; their label
    shares are estimated from class profiles (:func:`estimate_label_shares`). All clients count
    equally, whatever their number of samples. The paper excludes clients that were chosen recently;
    here past turns and a bonus for waiting clients have this effect.

    Attributes:
        newcomers: maximum fraction of participants without a known class profile, such as new
            clients.
        memory: decay of past participations: in each round, the number of times that a client was
            chosen so far is multiplied by this factor.
        waiting: bonus for waiting, which grows with each round that a client is not chosen. After
            n / k rounds (n clients, k participants) it equals this value, in nats. With 0, some
            clients may wait very long.
    """

    name: ClassVar[str] = "coverage"
    about: ClassVar[About] = About(
        "client selection",
        Paper(
            title="Optimizing Federated Learning by Entropy-Based Client Selection",
            authors="Andreas Lutz, Gabriele Steidl, Karsten Müller, Wojciech Samek",
            venue="arXiv",
            year=2024,
            link="https://arxiv.org/abs/2411.01240",
        ),
        server_state="a number per client",
    )
    waiting: Annotated[float, Ge(0)] = 0.1

    def select(
        self, profiles: Tensor, recent: Tensor, turns: Tensor, bonus: Tensor, count: int
    ) -> Tensor:
        """Choose the clients with which the label shares are most even, one by one."""
        known = (recent != 0).any(dim=1)  # others have sent no valid update
        total = (turns * known).double() @ estimate_label_shares(recent)
        return choose_most_even(total, estimate_label_shares(profiles), bonus, count)


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
        size = sums.sum(dim=1)  # 0 if there are no profiles yet, and xlogy(0, 0) = 0
        entropies = torch.xlogy(size, size) - torch.xlogy(sums, sums).sum(dim=1)
        best = int((entropies + bonus).argmax())
        chosen.append(best)
        total = sums[best]
        bonus[best] = -torch.inf
    return torch.tensor(chosen, dtype=torch.int64)
