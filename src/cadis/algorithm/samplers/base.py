"""Base class of samplers, uniform sampling, and functions that several samplers use."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.types import (
    ClientId,
    ClientUpdate,
    Message,
    TensorState,
    ids_from_tensor,
    ids_to_tensor,
)

_FEDAVG = Paper(
    title="Communication-Efficient Learning of Deep Networks from Decentralized Data",
    authors="H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Agüera y Arcas",
    venue="AISTATS",
    year=2017,
    link="https://arxiv.org/abs/1602.05629",
)
MAX_CANDIDATES = 2048  # if more clients are available, only a random subset is compared
FORGOTTEN_TURNS = 1e-3  # a client with fewer turns is no longer compared


def _label_unknown(clients: Sequence[ClientId]) -> Tensor:
    return torch.full((len(clients),), -1)


def _no_profiles(clients: Sequence[ClientId]) -> Tensor:
    return torch.zeros(len(clients), 0)


@dataclass(frozen=True)
class SamplerRound:
    """Facts about a round before its participants are chosen; the argument of ``choose``.

    Attributes:
        number: number of the round, from 1.
        available: ids of the n available clients, in the same order in each round.
        num_participants: k, the number of participants to choose; at most n.
        generator: random generator of the round.
        cluster_labels: function that returns the cluster of each of m clients, (m,), as found by
            the method; -1 for a client without a known cluster.
        client_profiles: function that returns a vector for each of m clients, (m, d), whose cosines
            are the similarities of the clients; zeros for a client that has not taken part yet.
    """

    number: int
    available: Sequence[ClientId]
    num_participants: int
    generator: torch.Generator
    cluster_labels: Callable[[Sequence[ClientId]], Tensor] = _label_unknown
    client_profiles: Callable[[Sequence[ClientId]], Tensor] = _no_profiles

    def select_clients(self, indices: Tensor) -> list[ClientId]:
        """Return the available clients at ``indices``, (m,), in the order of ``available``."""
        return [self.available[index] for index in sorted(indices.tolist())]


@dataclass(frozen=True)
class SamplerFeedback:
    """Result of a round; the argument of ``learn``.

    Attributes:
        number: number of the round, from 1.
        updates: valid updates of the participants.
        sent: message that each of these participants received, by client id.
        report: arrays that the method reports about the round, by name.
        head: slices of ``model.parameters`` with the classifier layer: its weight, then its bias if
            it has one; empty without a classifier layer.
        num_outputs: number of outputs of the classifier layer; 0 without a classifier layer.
        participants: all clients that the sampler chose, also those without a valid update.
    """

    number: int
    updates: Sequence[ClientUpdate]
    sent: Mapping[ClientId, Message] = field(default_factory=dict)
    report: TensorState = field(default_factory=dict)
    head: tuple[slice, ...] = ()
    num_outputs: int = 0
    participants: Sequence[ClientId] = ()


class BaseSampler:
    """Base class of samplers, which choose the participants of a round.

    Derive a frozen dataclass and write ``choose``. Override ``learn`` if the choice depends on past
    rounds. A sampler object stores nothing between calls: its state is passed in and returned as
    named tensors, which checkpoints store.

    Example:
        Choose the clients with the smallest ids in even rounds, and the others in odd rounds:

        >>> from dataclasses import dataclass
        >>> import torch
        >>> import cadis
        >>> from cadis.algorithm.samplers import BaseSampler
        >>> @dataclass(frozen=True)
        ... class Alternate(BaseSampler):
        ...     name = "alternate"
        ...
        ...     def choose(self, server_round, state):
        ...         clients = sorted(server_round.available, reverse=server_round.number % 2 == 1)
        ...         return clients[: server_round.num_participants]
        >>>
        >>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> clients, test = [(x[:20], y[:20]), (x[20:40], y[20:40])], (x[40:], y[40:])
        >>> model, sampler = torch.nn.Linear(4, 2), Alternate()
        >>> result = cadis.run(model, clients, test, rounds=2, per_round=1, sampler=sampler)
        >>> [record.participants for record in result.history]
        [[1], [0]]

        From a file ``mine.py``, the class runs with ``cadis run --sampler mine.py:Alternate``.

    Attributes:
        name: name of the sampler in options and files.
        needs_clusters: True if the sampler needs clusters. A method that does not find clusters
            then raises an error.
        needs_profiles: True if the sampler needs profiles of the clients. A method without profiles
            then raises an error.
        needs_head: True if the sampler reads the updates of the classifier layer. A model without a
            classifier layer then raises an error.
    """

    name: ClassVar[str]
    needs_clusters: ClassVar[bool] = False
    needs_profiles: ClassVar[bool] = False
    needs_head: ClassVar[bool] = False

    @abstractmethod
    def choose(self, server_round: SamplerRound, state: TensorState) -> Sequence[ClientId]:
        """Return the participants of a round. Called at the start of each round.

        Args:
            server_round: available clients, number of participants and random generator.
            state: state that :meth:`learn` returned after the last round; empty at first.

        Returns:
            Ids of at most ``num_participants`` of the available clients, each only once.
        """

    def learn(self, feedback: SamplerFeedback, state: TensorState) -> TensorState:
        """Return the state for the next round. Called at the end of each round.

        The default returns the state unchanged.

        Args:
            feedback: valid updates of the participants, and the report of the method.
            state: state before this round; empty at first.

        Returns:
            Named tensors. To store client ids, use ``cadis.types.ids_to_tensor``.
        """
        del feedback
        return state


@dataclass(frozen=True)
class Uniform(BaseSampler):
    """Choose k of n clients uniformly at random, without replacement."""

    name: ClassVar[str] = "uniform"
    about: ClassVar[About] = About("client selection", _FEDAVG)

    def choose(self, server_round: SamplerRound, state: TensorState) -> Sequence[ClientId]:
        """Draw the participants, and return them in the order of ``available``."""
        del state
        order = torch.randperm(len(server_round.available), generator=server_round.generator)
        return server_round.select_clients(order[: server_round.num_participants])


def draw_newcomers(
    order: Tensor, is_new: Tensor, max_fraction: float, server_round: SamplerRound
) -> Tensor:
    """Choose participants among the clients that the method does not know yet.

    As many are chosen as in uniform sampling, up to a maximum fraction of the participants.
    Newcomers that never reply then cannot fill the round.

    Args:
        order: indices of the n available clients in random order, (n,).
        is_new: whether a client is a newcomer, (n,), bool.
        max_fraction: maximum fraction of newcomers, unless all clients are newcomers.
        server_round: number of participants and random generator.

    Returns:
        Indices of the newcomers, in the given order, (m,).
    """
    num_participants, fraction = server_round.num_participants, float(is_new.float().mean())
    if fraction == 1:
        return order[:num_participants]
    draws = torch.rand(num_participants, generator=server_round.generator)
    count = min(int((draws < fraction).sum()), round(max_fraction * num_participants))
    return order[is_new[order]][:count]


def draw_without_replacement(log_weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw indices one after the other, with probabilities proportional to the remaining weights.

    Uses the Gumbel top-k trick, which is exact also for very small weights.

    Args:
        log_weights: logarithms of the weights; an added constant has no effect, (n,).
        count: m, the number of indices to draw.
        generator: random generator.

    Returns:
        Indices in the order of the draws, (m,).
    """
    noise = torch.empty(len(log_weights), dtype=torch.float64)
    noise.exponential_(generator=generator)
    indices: Tensor = (log_weights.double() - noise.log()).topk(count).indices
    return indices


def read_client_rows(state: TensorState, *columns: str) -> dict[ClientId, tuple[Any, ...]]:
    """Return the rows of a sampler's state by client; one value per column.

    Args:
        state: tensors with one row per client, and the tensor "clients" with their ids; or empty.
        columns: names of the tensors to read.
    """
    if not state:
        return {}
    tensors = [state[name] for name in columns]
    rows = zip(*(t if t.dim() > 1 else t.tolist() for t in tensors), strict=True)
    return dict(zip(ids_from_tensor(state["clients"]), rows, strict=True))


def count_turns(feedback: SamplerFeedback, state: TensorState, memory: float) -> TensorState:
    """Return the turns of each client, which fade from round to round, and its last round.

    Args:
        feedback: participants of the round, which get one turn each.
        state: result of this function after the last round; empty at first.
        memory: factor by which past turns count less in each round.
    """
    rows = {
        client: (turns * memory, last_round)
        for client, (turns, last_round) in read_client_rows(state, "turns", "last_round").items()
    }
    for client in feedback.participants:
        turns, _ = rows.get(client, (0.0, 0))
        rows[client] = turns + 1, feedback.number
    turns, last_rounds = zip(*rows.values(), strict=True)
    return {
        "clients": ids_to_tensor(list(rows)),
        "turns": torch.tensor(turns),
        "last_round": torch.tensor(last_rounds),
    }


def compute_waits(
    clients: Sequence[ClientId], server_round: SamplerRound, state: TensorState
) -> Tensor:
    """Return the rounds since each client was chosen, in units of n / k rounds, (m,).

    Uniform sampling chooses a client once in n / k rounds on average.

    Args:
        clients: m clients.
        server_round: number of the round, n available clients and k participants.
        state: result of :func:`count_turns`; a client that is not in it waits since round 0.
    """
    last_rounds = read_client_rows(state, "last_round")
    last = torch.tensor([last_rounds.get(client, (0,))[0] for client in clients])
    waits = (server_round.number - 1 - last) / len(server_round.available)
    return waits * server_round.num_participants
