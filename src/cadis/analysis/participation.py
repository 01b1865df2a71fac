"""Clients that no longer take part in the rounds of a run."""

from collections.abc import Sequence

from cadis.server import RoundRecord
from cadis.types import ClientId

_MAX_ABSENCE = 3  # times the longest gap that is usual for the client


def find_departures(history: Sequence[RoundRecord]) -> dict[ClientId, int]:
    """Return the last round of each client that has not taken part for a long time at the end.

    A client is absent for long if its absence is more than three times as long as its longest gap
    before, and as the mean gap of all clients (clients / participants per round). Both are needed:
    a client that is sampled at random twice in succession has a short gap by chance.

    Args:
        history: records of all rounds.
    """
    last: dict[ClientId, int] = {}
    longest: dict[ClientId, int] = {}
    for record in history:
        for client in record.participants:
            gap = record.round - last.get(client, record.round)
            longest[client] = max(longest.get(client, 0), gap)
            last[client] = record.round
    num_participations = sum(len(record.participants) for record in history)
    mean_gap = len(last) * len(history) / max(1, num_participations)
    end = history[-1].round
    return {
        client: number
        for client, number in last.items()
        if end - number > _MAX_ABSENCE * max(mean_gap, longest[client])
    }
