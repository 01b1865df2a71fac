"""Telling whose updates are left out: every client once, and the sum at the end."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cadis.server import RoundRecord
from cadis.types import ClientId

_MOST = 10
"""So many clients are named; of more, only the sum is told."""


@dataclass
class RejectionLog:
    """Hears of all rounds of a run, and tells what a user should know of them.

    Attributes:
        say: called with a sentence.
        updates: how many were left out so far.
        clients: whose they were.
    """

    say: Callable[[str], None]
    updates: int = 0
    clients: set[ClientId] = field(default_factory=set)

    def hear(self, record: RoundRecord) -> None:
        """Tell of clients that are left out for the first time."""
        for rejection in record.rejected:
            self.updates += 1
            if rejection.client not in self.clients:
                self.clients.add(rejection.client)
                if len(self.clients) <= _MOST:
                    who = f"client {rejection.client}"
                    self.say(f"Round {record.round} is without {who}: {rejection.reason}.")

    def finish(self) -> None:
        """Tell how many it were, if not all of them have been told."""
        if self.updates > min(len(self.clients), _MOST):
            whose = "one client" if len(self.clients) == 1 else f"{len(self.clients)} clients"
            self.say(f"{self.updates} updates of {whose} were left out; the records name them.")
