"""Whose pairs are looked at where there are too many clients to look at all of them."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from cadis.types import ClientId

_EXACT = 300
"""Up to so many clients, all of them are looked at."""

SHOWN = 120
"""Of more, so many are: what is worked out of pairs of clients then costs the same for any number
of them, and a picture has room for no more."""

Client = TypeVar("Client", int, ClientId)


def sample(
    clients: Sequence[Client],
    true_clusters: Mapping[Client, int | None],
    exact: int = _EXACT,
    shown: int = SHOWN,
) -> list[Client]:
    """All clients, or of very many an even choice; their order is kept.

    Every cluster has its share, and one client at least if there are not too many clusters.

    Args:
        clients: those of a cluster side by side, if clusters are known.
        true_clusters: their clusters, as far as they are known.
        exact: up to so many, it is all of them.
        shown: of more, so many are chosen.
    """
    if len(clients) <= exact:
        return list(clients)
    first = {true_clusters[client]: client for client in reversed(clients)}
    chosen = set(first.values()) if 2 * len(first) <= shown else set()
    others = [client for client in clients if client not in chosen]
    room = shown - len(chosen)
    chosen.update(others[place * len(others) // room] for place in range(room))
    return [client for client in clients if client in chosen]
