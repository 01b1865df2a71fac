"""FedFV (Wang et al., 2021): updates that pull against each other are made to agree first."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from math import ceil
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.aggregation import mean_state
from cadis.algorithm.method import Aggregation, ServerRound, ServerState
from cadis.algorithm.methods.fedcav import SendsReceivedLoss
from cadis.types import ClientId, ClientUpdate, TensorState, ids_from_tensor, ids_to_tensor

_CHUNK = 2**15  # columns of the updates that are multiplied at once, in double precision
_NOTHING = 1e-12  # a squared length, as part of the mean's, that is nothing but rounding


@dataclass(frozen=True)
class FedFV(SendsReceivedLoss):
    """Takes conflicts out of the updates, g_i . g_j < 0, before it averages them.

    Internal conflicts: every update but those of the share alpha of clients with the highest
    losses is projected onto the normal plane of each other one that it conflicts with,
    g <- g - (g . g_j) / ||g_j||^2 g_j, in the order of losses, so that the highest one has the last
    word. External conflicts: the mean of what comes of it is projected in the same way onto the
    normal plane of the sum of those it conflicts with among the last updates of absent clients,
    for each of the last tau rounds that somebody took part in last, the oldest first. The result
    is given the length of the plain mean (Algorithms 1 to 3 of the paper). The losses are those of
    the received model; buffers are averaged.

    Departure: the length is left alone where projections leave nothing of the mean, since a
    direction that is nothing but rounding would be blown up. The number of samples does not matter,
    as in the paper's algorithms; there it says how often a client is drawn, here the sampler does.

    Attributes:
        alpha: which part of the participants, those with the highest losses, keep their updates as
            they are.
        tau: in how many of the last rounds absent clients are remembered.
    """

    name: ClassVar[str] = "fedfv"
    about: ClassVar[About] = About(
        kind="weights on the server",
        paper="Wang et al., 2021",
        sends="the received model's loss",
        server_memory="the updates of the last tau rounds",
    )
    alpha: Annotated[float, Ge(0), Le(1)] = 0.1
    tau: Annotated[int, Ge(0)] = 1

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Mitigate internal, then external conflicts; all of it in coefficients of the updates."""
        (name, sent), *_ = state.models.items()
        weights = torch.full((len(updates),), 1 / len(updates), dtype=torch.float64)
        mean = mean_state([update.model for update in updates], weights)
        if self.alpha == 1 and self.tau == 0:
            return Aggregation({name: mean}, {}, weights)
        present = _Remembered.of(updates, sent.parameters, server_round.number)
        absent = _Remembered.from_tensors(state.memory, present)
        absent = absent.where([client not in present.clients for client in absent.clients])
        products = inner_products(present.updates, absent.updates)
        losses = torch.tensor([update.scalars["received_loss"] for update in updates])
        step = self.coefficients(products, losses, absent.rounds)
        memory = self.remembered(absent, present, server_round.number)
        if torch.equal(step, _mean_coefficients(len(updates), len(products))):
            return Aggregation({name: mean}, memory, weights)  # nothing was in conflict
        shares = step.to(present.updates.dtype).split([len(updates), len(absent.rounds)])
        moved = shares[0] @ present.updates + shares[1] @ absent.updates  # (P,)
        parameters = (sent.parameters + moved).to(sent.parameters.dtype)
        return Aggregation({name: replace(mean, parameters=parameters)}, memory, weights)

    def remembered(self, absent: "_Remembered", present: "_Remembered", number: int) -> TensorState:
        """The updates that may be asked for in the next round."""
        if self.tau == 0:
            return {}
        recent = absent.where((absent.rounds > number - self.tau).tolist())
        kept = recent.joined(present) if recent.clients else present
        ids = ids_to_tensor(kept.clients)
        return {"client_ids": ids, "rounds": kept.rounds, "updates": kept.updates}

    def coefficients(self, products: Tensor, losses: Tensor, rounds: Tensor) -> Tensor:
        """How often each of the k present and m absent updates goes into the step, (k + m,).

        Losses are the participants', (k,), rounds those of the absent ones' last updates, (m,).
        """
        mean = _mean_coefficients(len(losses), len(products))
        step = internally_mitigated(products, losses, self.alpha)
        step = externally_mitigated(products, step, rounds)
        if torch.equal(step, mean):
            return mean
        wanted, found = (vector @ products @ vector for vector in (mean, step))
        return step * (wanted / found).sqrt() if found > _NOTHING * wanted else step


def internally_mitigated(products: Tensor, losses: Tensor, alpha: float) -> Tensor:
    """The mean of the participants' projected updates (Algorithm 2), (k + m,)."""
    number = len(losses)
    order = losses.argsort(stable=True).tolist()
    own = torch.eye(number, len(products), dtype=torch.float64)
    for place in order[: number - ceil(alpha * number - 1e-9)]:
        for other in order:
            inner = own[place] @ products[other]
            if other != place and inner < 0:
                own[place, other] -= inner / products[other, other]
    return own.mean(dim=0)


def externally_mitigated(products: Tensor, step: Tensor, rounds: Tensor) -> Tensor:
    """A step made to agree with the absent clients of each round (Algorithm 3), (k + m,)."""
    number = len(products) - len(rounds)
    for when in rounds.unique().tolist():  # in ascending order
        places = number + (rounds == when).nonzero().flatten()
        against = places[(products @ step)[places] < 0]
        if len(against):
            sum_of = torch.zeros_like(step).index_fill(0, against, 1.0)
            step = step - (step @ products @ sum_of) / (sum_of @ products @ sum_of) * sum_of
    return step


def inner_products(present: Tensor, absent: Tensor) -> Tensor:
    """Inner products of all rows of two matrices of updates, (k + m, k + m), float64."""
    size = len(present) + len(absent)
    products = torch.zeros(size, size, dtype=torch.float64)
    for parts in zip(present.split(_CHUNK, dim=1), absent.split(_CHUNK, dim=1), strict=True):
        rows = torch.cat(parts).double()
        products.addmm_(rows, rows.T)
    return products


def _mean_coefficients(number: int, size: int) -> Tensor:
    """Those of the plain mean of the participants, 0 for who is absent, (k + m,)."""
    mean = torch.zeros(size, dtype=torch.float64)
    mean[:number] = 1 / number
    return mean


@dataclass(frozen=True)
class _Remembered:
    """The last updates w_i - w_t of clients, (m, P), and in which rounds they were, (m,)."""

    clients: tuple[ClientId, ...]
    rounds: Tensor
    updates: Tensor

    @classmethod
    def of(cls, updates: Sequence[ClientUpdate], sent: Tensor, number: int) -> "_Remembered":
        precise = torch.promote_types(sent.dtype, torch.float32)
        moved = torch.empty(len(updates), len(sent), dtype=precise)
        for row, update in zip(moved, updates, strict=True):
            torch.sub(update.model.parameters.to(precise), sent, out=row)
        rounds = torch.full((len(updates),), number)
        return cls(tuple(update.client_id for update in updates), rounds, moved)

    @classmethod
    def from_tensors(cls, memory: TensorState, like: "_Remembered") -> "_Remembered":
        """What a checkpoint holds; nobody's, of the same form as others, if there is none."""
        if not memory:
            return cls((), like.rounds[:0], like.updates[:0])
        return cls(ids_from_tensor(memory["client_ids"]), memory["rounds"], memory["updates"])

    def where(self, kept: Sequence[bool]) -> "_Remembered":
        if all(kept):
            return self
        places = torch.tensor(kept)
        clients = tuple(compress(self.clients, kept))
        return _Remembered(clients, self.rounds[places], self.updates[places])

    def joined(self, later: "_Remembered") -> "_Remembered":
        rounds, updates = (self.rounds, later.rounds), (self.updates, later.updates)
        return _Remembered(self.clients + later.clients, torch.cat(rounds), torch.cat(updates))
