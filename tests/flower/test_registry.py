"""Tests of the identities of clients."""

import pytest
from flwr.app import ConfigRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo

from cadis.flower.registry import ClientRegistry, make_client_id, read_client_id
from cadis.server import Member


def make_node(number: int, name: str = "", at: str = "") -> NodeInfo:
    return NodeInfo(node_id=number, name=name, registered_at=at)


def test_registered_name_takes_precedence_over_reported_id() -> None:
    registry = ClientRegistry(claims={1: "liar", 2: 7})
    connected, refused = registry.match_nodes([make_node(1, "north"), make_node(2), make_node(3)])
    assert (connected, refused) == ({7: 2, "north": 1}, [])
    assert registry.find_unknown_nodes([make_node(1, "north"), make_node(2), make_node(3)]) == [3]


def test_clients_are_sorted_by_number_then_name_then_registration() -> None:
    unnamed = {node_id: make_client_id(node_id) for node_id in (1, 2)}
    registry = ClientRegistry(claims={**unnamed, 3: 10, 4: 9, 5: "b"})
    nodes = [
        make_node(1, at="2026-02"),
        make_node(2, at="2026-01"),
        make_node(3),
        make_node(4),
        make_node(5),
        make_node(6, "a"),
    ]
    assert list(registry.match_nodes(nodes)[0]) == [9, 10, "a", "b", "node-2", "node-1"]


def test_restarted_node_is_the_same_client() -> None:
    registry = ClientRegistry(claims={1: "north"})
    registry.match_nodes([make_node(1)])
    registry.record_round(["north"], 4)
    later = ClientRegistry.from_members(registry.members.values())
    later.claims[2] = "north"
    connected, refused = later.match_nodes([make_node(2)])
    assert (connected, refused) == ({"north": 2}, [])
    assert later.members["north"] == Member("north", 2, 4, registered=False)


def test_known_node_is_accepted_if_two_claim_the_same_id() -> None:
    registry = ClientRegistry.from_members([Member("north", 1, 3)])
    registry.claims[2] = "north"
    connected, (refusal,) = registry.match_nodes([make_node(2), make_node(1)])
    assert connected == {"north": 1}
    assert refusal.client == "north"
    assert refusal.reason == "node 2 claims this client id, as does node 1"


def test_no_node_is_accepted_if_two_unknown_ones_claim_the_same_id() -> None:
    registry = ClientRegistry(claims={1: 5, 2: 5, 3: 6})
    connected, refused = registry.match_nodes([make_node(1), make_node(2), make_node(3)])
    assert connected == {6: 3}
    assert [(r.client, r.reason.split()[1]) for r in refused] == [(5, "1"), (5, "2")]
    assert 5 not in registry.members
    connected, refused = registry.match_nodes(
        [make_node(2), make_node(3)]
    )  # the other one disconnected
    assert (connected, refused) == ({5: 2, 6: 3}, [])


def test_two_nodes_registered_under_one_name_are_refused() -> None:
    connected, refused = ClientRegistry().match_nodes(
        [make_node(1, "north"), make_node(2, "north")]
    )
    assert connected == {}
    assert len(refused) == 2


def test_other_nodes_cannot_claim_a_registered_name() -> None:
    registry = ClientRegistry(claims={2: "north"})
    connected, (refusal,) = registry.match_nodes([make_node(2), make_node(1, "north")])
    assert connected == {"north": 1}
    assert refusal.reason == "node 2 claims this client id, as does node 1"
    # Nor can they while the registered node is offline.
    later = ClientRegistry.from_members(registry.members.values())
    later.claims[2] = "north"
    connected, (refusal,) = later.match_nodes([make_node(2)])
    assert connected == {}
    assert refusal.reason == "node 2 claims this client id, but is not registered under that name"
    connected, refused = later.match_nodes([make_node(3, "north")])  # the same name with a new key
    assert (connected, refused) == ({"north": 3}, [])


@pytest.mark.parametrize(
    ("identity", "client"),
    [
        ({"partition-id": 0}, 0),
        ({"partition-id": 3, "client-id": "north"}, "north"),
        ({"client-id": 0.5}, None),
        ({}, None),
        *(({"client-id": bad, "partition-id": 3}, 3) for bad in ("", "x" * 200, "a\nb", 1.5)),
    ],
)
def test_first_valid_identity_is_the_client_id(
    identity: dict[str, str | float], client: str | int | None
) -> None:
    assert read_client_id(RecordDict({"any": ConfigRecord(dict(identity))})) == client
    assert read_client_id(RecordDict()) is None
