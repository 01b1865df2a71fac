"""Registry of clients: the client id of each Flower node, also after restarts."""

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from flwr.app import Message, MessageType, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from cadis._io import escape_controls
from cadis.errors import CadisError, RunError
from cadis.server import Member, Rejection
from cadis.types import ClientId, validate_client_id


def _escape_message(record: logging.LogRecord) -> bool:
    """Write control characters in a log message, such as in names of clients, as escapes."""
    record.msg, record.args = escape_controls(record.getMessage(), keep="\t"), ()
    return True


LOGGER = logging.getLogger("flwr.cadis")  # its messages go to Flower's log
LOGGER.addFilter(_escape_message)

IDENTITY_KEYS = ("client-id", "partition-id")
"""Keys of the client id in a client's reply, in order of precedence."""

_QUERY_TIMEOUT = 120.0
_LOG_INTERVAL = 15.0


def read_client_id(content: RecordDict) -> ClientId | None:
    """Return the client id in a reply, or None if it has no valid client id."""
    for key in IDENTITY_KEYS:
        for record in content.config_records.values():
            with suppress(CadisError):
                return validate_client_id(record.get(key))
    return None


def make_client_id(node: int) -> str:
    """Return the client id of a node that does not report one."""
    return f"node-{node}"


@dataclass
class ClientRegistry:
    """All clients that have connected so far.

    Attributes:
        members: the clients with their latest node, by client id.
        claims: the client id that each node reported, by node id.
    """

    members: dict[ClientId, Member] = field(default_factory=dict)
    claims: dict[int, ClientId] = field(default_factory=dict)

    @classmethod
    def from_members(cls, members: Iterable[Member]) -> "ClientRegistry":
        """Restore the registry from the members of a checkpoint."""
        clients = list(members)
        return cls({m.client: m for m in clients}, {m.node: m.client for m in clients})

    def find_unknown_nodes(self, nodes: Iterable[NodeInfo]) -> list[int]:
        """Return the ids of nodes without a name that have not reported a client id yet."""
        return [n.node_id for n in nodes if not n.name and n.node_id not in self.claims]

    def match_nodes(self, nodes: Iterable[NodeInfo]) -> tuple[dict[ClientId, int], list[Rejection]]:
        """Match nodes to clients.

        The registered name of a node takes precedence over the client id that it reports, and no
        other node can use that name. If several nodes claim the same client id, only the node that
        had it before is accepted.

        Returns:
            The node id of each connected client, sorted by client id, and the rejected nodes.
        """
        claimants: dict[ClientId, list[NodeInfo]] = defaultdict(list)
        for info in nodes:
            client = info.name or self.claims.get(info.node_id)
            if client is not None:
                claimants[client].append(info)
        connected, rejected = {}, []
        for client, candidates in sorted(claimants.items(), key=_sort_key):
            member, node = self.members.get(client), self._choose_node(client, candidates)
            if node is not None:
                connected[client] = node.node_id
                last_round = 0 if member is None else member.last_round
                self.members[client] = Member(client, node.node_id, last_round, bool(node.name))
            rejected += [_reject(client, n, candidates) for n in candidates if n is not node]
        return connected, rejected

    def record_round(self, clients: Iterable[ClientId], number: int) -> None:
        """Set the last round of clients whose updates were aggregated in round ``number``."""
        for client in clients:
            self.members[client] = replace(self.members[client], last_round=number)

    def _choose_node(self, client: ClientId, nodes: list[NodeInfo]) -> NodeInfo | None:
        """Choose one of the nodes that claim a client id; return None if the choice is not clear.

        If a node has the id as its registered name now, or had it before, only nodes with this name
        can be chosen. Of several nodes, the one that had the id before is chosen.
        """
        member, named = self.members.get(client), [node for node in nodes if node.name]
        eligible = named if named or (member is not None and member.registered) else nodes
        if len(eligible) > 1 and member is not None:
            eligible = [node for node in eligible if node.node_id == member.node]
        return eligible[0] if len(eligible) == 1 else None


def _reject(client: ClientId, node: NodeInfo, candidates: list[NodeInfo]) -> Rejection:
    others = ", ".join(str(other.node_id) for other in candidates if other is not node)
    reason = f"as does node {others}" if others else "but is not registered under that name"
    return Rejection(client, f"node {node.node_id} claims this client id, {reason}")


def _sort_key(claim: tuple[ClientId, list[NodeInfo]]) -> tuple[int, int, str, str]:
    """Sort numbers first, then names, then nodes without client id by time of registration."""
    client, (node, *_) = claim
    if isinstance(client, int):
        return (0, client, "", "")
    if client == make_client_id(node.node_id):
        return (2, 0, node.registered_at, client)
    return (1, 0, "", client)


def wait_for_clients(
    grid: Grid, registry: ClientRegistry, num_wanted: int, num_required: int, max_seconds: float
) -> tuple[dict[ClientId, int], list[Rejection]]:
    """Wait until enough clients are connected.

    Args:
        grid: Flower's connection to the nodes.
        registry: the registry of the clients.
        num_wanted: number of clients to wait for.
        num_required: number of clients that are enough when the time is over; with fewer clients,
            the run fails.
        max_seconds: maximum number of seconds to wait.

    Returns:
        The node id of each connected client, and the rejected nodes.
    """
    deadline, last_log = time.monotonic() + max_seconds, 0.0
    while True:
        nodes = list(grid.get_nodes())
        _query_identities(grid, registry, registry.find_unknown_nodes(nodes))
        connected, rejected = registry.match_nodes(nodes)
        if len(connected) >= num_wanted:
            return connected, rejected
        if time.monotonic() > deadline:
            if len(connected) < num_required:
                raise RunError(
                    f"Only {len(connected)} of at least {num_required} clients connected within "
                    f"{max_seconds:g} seconds; start the others, then resume the run."
                )
            LOGGER.warning("Continuing with %d of %d clients.", len(connected), num_wanted)
            return connected, rejected
        if time.monotonic() > last_log + _LOG_INTERVAL:
            last_log = time.monotonic()
            names = ", ".join(map(str, list(connected)[:20]))
            LOGGER.info(
                "Waiting for clients: %d of %d connected. %s", len(connected), num_wanted, names
            )
            for rejection in rejected:
                LOGGER.warning("Rejected client %s: %s.", rejection.client, rejection.reason)
        time.sleep(1)


def _query_identities(grid: Grid, registry: ClientRegistry, nodes: list[int]) -> None:
    """Ask nodes for their client ids.

    A node without a query function in its ClientApp gets a client id made from its node id. A node
    that does not reply is asked again next time.
    """
    if not nodes:
        return
    queries = [Message(RecordDict(), n, MessageType.QUERY, ttl=_QUERY_TIMEOUT) for n in nodes]
    for reply in grid.send_and_receive(queries, timeout=_QUERY_TIMEOUT):
        node = reply.metadata.src_node_id
        if node in nodes:
            client = None if reply.has_error() else read_client_id(reply.content)
            registry.claims[node] = make_client_id(node) if client is None else client
