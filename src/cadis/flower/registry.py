"""Who is who: clients are waited for, asked, and keep their identity over rounds and restarts."""

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from flwr.app import Message, MessageType, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from cadis.errors import CadisError, RunError
from cadis.server import Member, Rejection
from cadis.types import ClientId, checked_client_id

LOGGER = logging.getLogger("flwr")

IDENTITY_KEYS = ("client-id", "partition-id")
"""What a client may call itself, the first that it sends."""

_ASK_SECONDS = 120.0
_SAY_SECONDS = 15.0


def name_in(content: RecordDict) -> ClientId | None:
    """Return the identity that a client sends with a message, if it does and it can be one."""
    for key in IDENTITY_KEYS:
        for record in content.config_records.values():
            with suppress(CadisError):
                return checked_client_id(record.get(key))
    return None


def nameless(node: int) -> str:
    """Return the identity of a node that has no other."""
    return f"node-{node}"


@dataclass
class ClientRegistry:
    """All clients that were ever there.

    Attributes:
        members: by identity, the client and the node that it was last.
        claims: by node, who it said it is.
    """

    members: dict[ClientId, Member] = field(default_factory=dict)
    claims: dict[int, ClientId] = field(default_factory=dict)

    @classmethod
    def of(cls, members: Iterable[Member]) -> "ClientRegistry":
        """Return the registry that a checkpoint holds."""
        known = list(members)
        return cls({m.client: m for m in known}, {m.node: m.client for m in known})

    def strangers(self, nodes: Iterable[NodeInfo]) -> list[int]:
        """Return the nodes that must be asked who they are."""
        return [n.node_id for n in nodes if not n.name and n.node_id not in self.claims]

    def call(self, nodes: Iterable[NodeInfo]) -> tuple[dict[ClientId, int], list[Rejection]]:
        """Return the node of each client that is there, by order of names, and who is refused.

        A registered name counts more than what a node says, and nobody else can claim it. Where
        several nodes claim to be the same client, only the one that has been it before is let in.
        """
        claimants: dict[ClientId, list[NodeInfo]] = defaultdict(list)
        for node in nodes:
            client = node.name or self.claims.get(node.node_id)
            if client is not None:
                claimants[client].append(node)
        present, refused = {}, []
        for client, claiming in sorted(claimants.items(), key=_order):
            known, holder = self.members.get(client), self._holder(client, claiming)
            if holder is not None:
                present[client] = holder.node_id
                last_round = 0 if known is None else known.last_round
                member = Member(client, holder.node_id, last_round, bool(holder.name))
                self.members[client] = member
            refused += [_refusal(client, n, claiming) for n in claiming if n is not holder]
        return present, refused

    def take_part(self, clients: Iterable[ClientId], number: int) -> None:
        """Updates of these clients became part of a round."""
        for client in clients:
            self.members[client] = replace(self.members[client], last_round=number)

    def _holder(self, client: ClientId, nodes: list[NodeInfo]) -> NodeInfo | None:
        """The node that is the client, if that is beyond doubt."""
        known, named = self.members.get(client), [node for node in nodes if node.name]
        entitled = named if named or (known is not None and known.registered) else nodes
        if len(entitled) > 1 and known is not None:
            entitled = [node for node in entitled if node.node_id == known.node]
        return entitled[0] if len(entitled) == 1 else None


def _refusal(client: ClientId, node: NodeInfo, claiming: list[NodeInfo]) -> Rejection:
    others = ", ".join(str(other.node_id) for other in claiming if other is not node)
    reason = f"and so does node {others}" if others else "but is not registered under that name"
    return Rejection(client, f"node {node.node_id} claims to be it, {reason}")


def _order(claim: tuple[ClientId, list[NodeInfo]]) -> tuple[int, int, str, str]:
    """Return a sort key: numbers, then names, then nodes without either as they registered."""
    client, (node, *_) = claim
    if isinstance(client, int):
        return (0, client, "", "")
    if client == nameless(node.node_id):
        return (2, 0, node.registered_at, client)
    return (1, 0, "", client)


def gather(
    grid: Grid, registry: ClientRegistry, wanted: int, needed: int, patience: float
) -> tuple[dict[ClientId, int], list[Rejection]]:
    """Return the node of each client that is there, and who is refused.

    Waits for the ``wanted`` clients; after ``patience`` seconds, the ``needed`` ones are enough.
    """
    deadline, said = time.monotonic() + patience, 0.0
    while True:
        nodes = list(grid.get_nodes())
        _introduce(grid, registry, registry.strangers(nodes))
        present, refused = registry.call(nodes)
        if len(present) >= wanted:
            return present, refused
        if time.monotonic() > deadline:
            if len(present) < needed:
                raise RunError(
                    f"Only {len(present)} clients are there after {patience:g} seconds, of at "
                    f"least {needed}; start the others, then resume the run."
                )
            LOGGER.warning("Going on with %d of %d clients.", len(present), wanted)
            return present, refused
        if time.monotonic() > said + _SAY_SECONDS:
            said = time.monotonic()
            names = ", ".join(map(str, list(present)[:20]))
            LOGGER.info("Waiting for clients: %d of %d are there. %s", len(present), wanted, names)
            for refusal in refused:
                LOGGER.warning("Refused %s: %s.", refusal.client, refusal.reason)
        time.sleep(1)


def _introduce(grid: Grid, registry: ClientRegistry, strangers: list[int]) -> None:
    """Ask nodes who they are.

    A client app without an answer to such a question is known by its node. A node that does not
    answer at all is asked again, next time: what Flower says about it does not come from it.
    """
    if not strangers:
        return
    questions = [Message(RecordDict(), n, MessageType.QUERY, ttl=_ASK_SECONDS) for n in strangers]
    for reply in grid.send_and_receive(questions, timeout=_ASK_SECONDS):
        node = reply.metadata.src_node_id
        if node in strangers:
            name = None if reply.has_error() else name_in(reply.content)
            registry.claims[node] = nameless(node) if name is None else name
