"""Whom to show of a large federation."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from cadis.core import ClientId

_EXACT = 300
"""Up to so many clients, all of them are looked at."""

SHOWN = 120
"""Of more, so many are: what is worked out of pairs of clients then costs the same for any number
of them, and a picture has room for no more."""

Client = TypeVar("Client", int, ClientId)


def sample(clients: Sequence[Client], cluster_of: Mapping[Client, int | None]) -> list[Client]:
    """All clients, or of very many an even choice; their order is kept.

    Every cluster has its share, and one client at least if there are not too many clusters.

    Args:
        clients: those of a cluster side by side, if clusters are known.
        cluster_of: their clusters.
    """
    if len(clients) <= _EXACT:
        return list(clients)
    first = {cluster_of[client]: client for client in reversed(clients)}
    chosen = set(first.values()) if 2 * len(first) <= SHOWN else set()
    others = [client for client in clients if client not in chosen]
    room = SHOWN - len(chosen)
    chosen.update(others[place * len(others) // room] for place in range(room))
    return [client for client in clients if client in chosen]


def some_of(shown: int, total: int) -> str:
    """How many of all are shown, in words; nothing if all are."""
    return "" if shown >= total else f"{shown} of {total:,} clients"
