"""FedFV: fair averaging that mitigates conflicts between updates.

Problem: updates with a negative inner product cancel each other, so that the mean harms some
clients.

Zheng Wang, Xiaoliang Fan, Jianzhong Qi, Chenglu Wen, Cheng Wang, Rongshan Yu: Federated Learning
with Fair Averaging. IJCAI 2021. https://arxiv.org/abs/2104.14937
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from math import ceil
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.aggregation import average_models
from cadis.algorithm.method import Aggregation, ServerRound, ServerState
from cadis.algorithm.methods.fedcav import ReceivedLossMethod
from cadis.types import ClientId, ClientUpdate, TensorState, ids_from_tensor, ids_to_tensor

_CHUNK = 2**15  # columns of the updates that are converted to float64 at once, to save memory
_ROUNDING = 1e-12  # a squared norm below this fraction of the mean's is only rounding error


@dataclass(frozen=True)
class FedFV(ReceivedLossMethod):
    """The mean of updates after conflicts, g_i . g_j < 0, are projected away.

    Internal conflicts (Algorithm 2 of the paper): an update in conflict with another one is
    projected onto its normal plane, ``g <- g - (g . g_j) / ||g_j||^2 * g_j``, in ascending order of
    the losses. The fraction alpha of the participants with the highest losses is not changed.
    External conflicts (Algorithm 3): the mean of the results is projected in the same way against
    the last updates of absent clients. For each of the last tau rounds, the oldest first, g_j is
    the sum of the updates in conflict with the mean. The result is scaled to the norm of the plain
    mean (Algorithm 1). Losses are those of the received model; buffers are averaged.

    Use it if all clients should profit from the global model.

    Departure: the result is not scaled if the projections leave only rounding errors. The number of
    samples does not matter, as in the algorithms of the paper; there it is the probability that a
    client is drawn, which is the task of the sampler here.

    Attributes:
        alpha: fraction of participants, those with the highest losses, whose updates are kept.
        tau: number of past rounds whose absent clients are considered.
    """

    name: ClassVar[str] = "fedfv"
    about: ClassVar[About] = About(
        topic="aggregation weights",
        paper=Paper(
            title="Federated Learning with Fair Averaging",
            authors="Zheng Wang, Xiaoliang Fan, Jianzhong Qi, Chenglu Wen, Cheng Wang, Rongshan Yu",
            venue="IJCAI",
            year=2021,
            link="https://arxiv.org/abs/2104.14937",
        ),
        sends="the received model's loss",
        server_state="the updates of the last tau rounds",
    )
    alpha: Annotated[float, Ge(0), Le(1)] = 0.1
    tau: Annotated[int, Ge(0)] = 1

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Mitigate internal, then external conflicts, in coefficients of the updates."""
        (name, model), *_ = state.models.items()
        weights = torch.full((len(updates),), 1 / len(updates), dtype=torch.float64)
        mean = average_models([update.model for update in updates], weights)
        if self.alpha == 1 and self.tau == 0:
            return Aggregation({name: mean}, {}, weights)
        present = _StoredUpdates.from_updates(updates, model.parameters, server_round.number)
        absent = _StoredUpdates.from_tensors(state.tensors, present)
        absent = absent.select([client not in present.clients for client in absent.clients])
        products = inner_products(present.updates, absent.updates)
        losses = torch.tensor([update.scalars["received_loss"] for update in updates])
        step = self.compute_coefficients(products, losses, absent.rounds)
        tensors = self._store_updates(absent, present, server_round.number)
        if torch.equal(step, _mean_coefficients(len(updates), len(products))):
            return Aggregation({name: mean}, tensors, weights)  # no conflict
        shares = step.to(present.updates.dtype).split([len(updates), len(absent.rounds)])
        update = shares[0] @ present.updates + shares[1] @ absent.updates  # (P,)
        parameters = (model.parameters + update).to(model.parameters.dtype)
        return Aggregation({name: replace(mean, parameters=parameters)}, tensors, weights)

    def _store_updates(
        self, absent: "_StoredUpdates", present: "_StoredUpdates", number: int
    ) -> TensorState:
        """Return the updates that the next round needs, as named tensors."""
        if self.tau == 0:
            return {}
        recent = absent.select((absent.rounds > number - self.tau).tolist())
        stored = recent.append(present) if recent.clients else present
        ids = ids_to_tensor(stored.clients)
        return {"client_ids": ids, "rounds": stored.rounds, "updates": stored.updates}

    def compute_coefficients(self, products: Tensor, losses: Tensor, rounds: Tensor) -> Tensor:
        """Return the coefficient of each update in the global step (Algorithm 1).

        Args:
            products: inner products of the k present and m absent updates, (k + m, k + m).
            losses: losses of the participants, (k,).
            rounds: rounds of the absent updates, (m,).

        Returns:
            Coefficients, (k + m,).
        """
        mean = _mean_coefficients(len(losses), len(products))
        step = mitigate_internal_conflicts(products, losses, self.alpha)
        step = mitigate_external_conflicts(products, step, rounds)
        if torch.equal(step, mean):
            return mean
        mean_square, square = (vector @ products @ vector for vector in (mean, step))
        if square > _ROUNDING * mean_square:
            return step * (mean_square / square).sqrt()
        return step


def mitigate_internal_conflicts(products: Tensor, losses: Tensor, alpha: float) -> Tensor:
    """Return the mean of the participants' projected updates (Algorithm 2), (k + m,)."""
    number = len(losses)
    order = losses.argsort(stable=True).tolist()
    coefficients = torch.eye(number, len(products), dtype=torch.float64)
    for row in order[: number - ceil(alpha * number - 1e-9)]:
        for other in order:
            inner = coefficients[row] @ products[other]
            if other != row and inner < 0:
                coefficients[row, other] -= inner / products[other, other]
    return coefficients.mean(dim=0)


def mitigate_external_conflicts(products: Tensor, step: Tensor, rounds: Tensor) -> Tensor:
    """Project a step against the absent clients of each past round (Algorithm 3), (k + m,)."""
    number = len(products) - len(rounds)
    for past_round in rounds.unique().tolist():  # in ascending order
        rows = number + (rounds == past_round).nonzero().flatten()
        conflicts = rows[(products @ step)[rows] < 0]
        if len(conflicts):
            total = torch.zeros_like(step).index_fill(0, conflicts, 1.0)
            step = step - (step @ products @ total) / (total @ products @ total) * total
    return step


def inner_products(present: Tensor, absent: Tensor) -> Tensor:
    """Return the inner products of all rows of two matrices, (k + m, k + m), float64."""
    size = len(present) + len(absent)
    products = torch.zeros(size, size, dtype=torch.float64)
    for parts in zip(present.split(_CHUNK, dim=1), absent.split(_CHUNK, dim=1), strict=True):
        rows = torch.cat(parts).double()
        products.addmm_(rows, rows.T)
    return products


def _mean_coefficients(number: int, size: int) -> Tensor:
    """Return the coefficients of the plain mean of the participants, (k + m,)."""
    mean = torch.zeros(size, dtype=torch.float64)
    mean[:number] = 1 / number
    return mean


@dataclass(frozen=True)
class _StoredUpdates:
    """The last update w_i - w_t of each client, and the round in which it was sent."""

    clients: tuple[ClientId, ...]  # m clients
    rounds: Tensor  # (m,)
    updates: Tensor  # (m, P)

    @classmethod
    def from_updates(
        cls, updates: Sequence[ClientUpdate], received: Tensor, number: int
    ) -> "_StoredUpdates":
        precise = torch.promote_types(received.dtype, torch.float32)
        matrix = torch.empty(len(updates), len(received), dtype=precise)
        for row, update in zip(matrix, updates, strict=True):
            torch.sub(update.model.parameters.to(precise), received, out=row)
        rounds = torch.full((len(updates),), number)
        return cls(tuple(update.client_id for update in updates), rounds, matrix)

    @classmethod
    def from_tensors(cls, tensors: TensorState, like: "_StoredUpdates") -> "_StoredUpdates":
        """Restore stored updates; without tensors, no updates with the types of ``like``."""
        if not tensors:
            return cls((), like.rounds[:0], like.updates[:0])
        return cls(ids_from_tensor(tensors["client_ids"]), tensors["rounds"], tensors["updates"])

    def select(self, mask: Sequence[bool]) -> "_StoredUpdates":
        if all(mask):
            return self
        rows = torch.tensor(mask)
        clients = tuple(compress(self.clients, mask))
        return _StoredUpdates(clients, self.rounds[rows], self.updates[rows])

    def append(self, later: "_StoredUpdates") -> "_StoredUpdates":
        rounds, updates = (self.rounds, later.rounds), (self.updates, later.updates)
        return _StoredUpdates(self.clients + later.clients, torch.cat(rounds), torch.cat(updates))
