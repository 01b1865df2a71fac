"""What a transport is: it delivers messages, and names who failed. It knows nothing of methods."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cadis.server.records import Rejection, RunState
from cadis.training import Evaluation
from cadis.types import ClientId, ClientUpdate, Message


@dataclass(frozen=True)
class AvailableClients:
    """Who could take part in a round.

    Attributes:
        clients: those that are there, always in the same order.
        wanted: k, how many are to take part.
        num_clients: n, all clients of the federation.
        refused: who was not let in, and why.
    """

    clients: Sequence[ClientId]
    wanted: int
    num_clients: int
    refused: Sequence[Rejection] = ()


@dataclass(frozen=True)
class RoundPlan:
    """A round that is to be, what it begins with, and by participant what it is sent."""

    number: int
    state: RunState
    presence: AvailableClients
    messages: Mapping[ClientId, Message]


@dataclass(frozen=True)
class Tested:
    """The global models after a round.

    Attributes:
        evaluations: by model, its test by class on the server's test set, where there is one.
        accuracy: what clients get on the average, where that is all that is known.
        loss: the same of the loss.
        measures: the same of the task's measures.
        client_accuracy: on each client's own data, held out where any are, in the federation's
            order, None for those that were not tested; None if nobody was.
        seconds: that it took, all together.
    """

    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    accuracy: float | None = None
    loss: float | None = None
    measures: Mapping[str, float] = field(default_factory=dict)
    client_accuracy: list[float | None] | None = None
    seconds: float = 0.0


class Transport(Protocol):
    """The way to the clients: processes on this machine, or Flower."""

    def presence(self) -> AvailableClients:
        """Who could take part in a round now."""

    def train(self, plan: RoundPlan) -> tuple[Sequence[ClientUpdate], Sequence[Rejection]]:
        """Send every participant its message; return the updates, and who failed and why.

        Both are in the order of the plan.
        """

    def remember(self, state: RunState, accepted: Sequence[ClientUpdate]) -> RunState:
        """A state with what the transport itself must know of its clients after a round."""

    def everyone(self) -> Sequence[ClientId]:
        """All clients of the federation that are known."""

    def test(self, state: RunState, model_name_for: Callable[[ClientId], str]) -> Tested:
        """Test the global models; each client uses the one that ``model_name_for`` names."""
