"""Who is who: a client keeps its identity over rounds and restarts."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from flwr.app import RecordDict
from flwr.proto.node_pb2 import NodeInfo

from cadis.core import ClientId
from cadis.runs import Member, Rejection

_KEYS = ("client-id", "partition-id")
"""What a client may call itself, the first that it sends."""


def name_in(content: RecordDict) -> ClientId | None:
    """The identity that a client sends with a message, if it does."""
    for key in _KEYS:
        for record in content.config_records.values():
            value = record.get(key)
            if isinstance(value, int | str) and value != "":
                return value
    return None


def nameless(node: int) -> str:
    """The identity of a node that has no other."""
    return f"node-{node}"


@dataclass
class Roll:
    """All clients that were ever there.

    Attributes:
        members: by identity, the client and the node that it was last.
        claims: by node, who it said it is.
    """

    members: dict[ClientId, Member] = field(default_factory=dict)
    claims: dict[int, ClientId] = field(default_factory=dict)

    @classmethod
    def of(cls, members: Iterable[Member]) -> "Roll":
        """As a checkpoint has it."""
        known = list(members)
        return cls({m.client: m for m in known}, {m.node: m.client for m in known})

    def strangers(self, nodes: Iterable[NodeInfo]) -> list[int]:
        """Nodes that must be asked who they are."""
        return [n.node_id for n in nodes if not n.name and n.node_id not in self.claims]

    def call(self, nodes: Iterable[NodeInfo]) -> tuple[dict[ClientId, int], list[Rejection]]:
        """Who is there: the node of each client, in the order of their names, and who is refused.

        A registered name counts more than what a node says. Where several nodes claim to be the
        same client, only the one that has been it before is let in. Numbers come first, then
        names, then nodes without any, in the order in which they were registered.
        """
        claimants: dict[ClientId, list[NodeInfo]] = defaultdict(list)
        for node in nodes:
            client = node.name or self.claims.get(node.node_id)
            if client is not None:
                claimants[client].append(node)
        present, refused = {}, []
        for client in sorted(claimants, key=lambda client: _order(client, claimants[client][0])):
            holder = self._holder(client, [node.node_id for node in claimants[client]])
            if holder is not None:
                present[client] = holder
                self.members[client] = self._member(client, holder)
            for node in claimants[client]:
                if node.node_id != holder:
                    refused.append(_refusal(client, node.node_id, claimants[client]))
        return present, refused

    def take_part(self, clients: Iterable[ClientId], number: int) -> None:
        """Updates of these clients became part of a round."""
        for client in clients:
            self.members[client] = replace(self.members[client], last_round=number)

    def last_round(self, client: ClientId) -> int:
        """The last round that a client's update was part of, 0 if there is none."""
        return self.members[client].last_round

    def _holder(self, client: ClientId, nodes: list[int]) -> int | None:
        """The node that is the client, if that is beyond doubt."""
        if len(nodes) == 1:
            return nodes[0]
        known = self.members.get(client)
        return known.node if known is not None and known.node in nodes else None

    def _member(self, client: ClientId, node: int) -> Member:
        known = self.members.get(client)
        return Member(client, node, known.last_round if known else 0)


def _refusal(client: ClientId, node: int, claimants: list[NodeInfo]) -> Rejection:
    others = ", ".join(str(other.node_id) for other in claimants if other.node_id != node)
    return Rejection(client, f"node {node} claims to be it, and so does node {others}")


def _order(client: ClientId, node: NodeInfo) -> tuple[int, int, str, str]:
    if isinstance(client, int):
        return (0, client, "", "")
    if client == nameless(node.node_id):
        return (2, 0, node.registered_at, client)
    return (1, 0, "", client)
