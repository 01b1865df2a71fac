"""The interface between the server and its clients.

A transport sends messages to clients, collects their updates and tests models; it knows nothing
about methods. The engine and :mod:`cadis.flower` implement it, and the server calls it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cadis.server.records import Rejection, RunState
from cadis.training import Evaluation
from cadis.types import ClientId, ClientUpdate, Message


@dataclass(frozen=True)
class AvailableClients:
    """The clients that can take part in a round.

    Attributes:
        clients: ids of the available clients, always in the same order.
        num_participants: k, the number of clients that the sampler chooses for a round.
        num_clients: n, the number of clients in the federation.
        rejected: clients that the transport does not accept, and the reasons.
    """

    clients: Sequence[ClientId]
    num_participants: int
    num_clients: int
    rejected: Sequence[Rejection] = ()


@dataclass(frozen=True)
class RoundPlan:
    """The participants of a round and the messages to them.

    Attributes:
        number: number of the round, from 1.
        state: state before the round.
        available: the clients that can take part.
        messages: the message to each participant.
    """

    number: int
    state: RunState
    available: AvailableClients
    messages: Mapping[ClientId, Message]


@dataclass(frozen=True)
class TestResult:
    """Test results of the global models after a round.

    Attributes:
        evaluations: evaluation of each model on the server's test set; empty if the models were not
            tested on it.
        accuracy: mean accuracy over clients, if clients tested the models.
        loss: mean loss over clients, if clients tested the models.
        metrics: other metrics of the task, if clients tested the models.
        client_accuracy: accuracy on each client's own data (held-out data if there are any), in the
            order of the federation, with None for a client that was not tested. None if no client
            was tested.
        seconds: total time of all tests.
    """

    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    accuracy: float | None = None
    loss: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    client_accuracy: list[float | None] | None = None
    seconds: float = 0.0


class Transport(Protocol):
    """The connection to the clients: worker processes on this machine, or Flower."""

    def available_clients(self) -> AvailableClients:
        """Return the clients that can take part in a round now."""

    def train(self, plan: RoundPlan) -> tuple[Sequence[ClientUpdate], Sequence[Rejection]]:
        """Send each participant its message.

        Returns:
            The updates, and the participants that sent none with the reasons, both in the order of
            the plan.
        """

    def update_state(self, state: RunState, accepted: Sequence[ClientUpdate]) -> RunState:
        """Return ``state`` with the data that the transport stores about its clients."""

    def all_clients(self) -> Sequence[ClientId]:
        """Return the ids of all known clients of the federation."""

    def test(self, state: RunState, model_name_for: Callable[[ClientId], str]) -> TestResult:
        """Test the global models.

        Args:
            state: state after the round.
            model_name_for: function from a client to the name of the model that it uses.
        """
