"""A client keeps its identity."""

import pytest
from flwr.app import ConfigRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo

from cadis.flower.registry import ClientRegistry, name_in, nameless
from cadis.server import Member


def node(number: int, name: str = "", at: str = "") -> NodeInfo:
    return NodeInfo(node_id=number, name=name, registered_at=at)


def test_a_registered_name_counts_more_than_what_a_node_says() -> None:
    registry = ClientRegistry(claims={1: "liar", 2: 7})
    present, refused = registry.call([node(1, "north"), node(2), node(3)])
    assert (present, refused) == ({7: 2, "north": 1}, [])
    assert registry.strangers([node(1, "north"), node(2), node(3)]) == [3]


def test_numbers_then_names_then_nodes_in_the_order_of_their_registration() -> None:
    registry = ClientRegistry(claims={1: nameless(1), 2: nameless(2), 3: 10, 4: 9, 5: "b"})
    nodes = [node(1, at="2026-02"), node(2, at="2026-01"), node(3), node(4), node(5), node(6, "a")]
    assert list(registry.call(nodes)[0]) == [9, 10, "a", "b", "node-2", "node-1"]


def test_a_restarted_node_is_the_same_client() -> None:
    registry = ClientRegistry(claims={1: "north"})
    registry.call([node(1)])
    registry.take_part(["north"], 4)
    later = ClientRegistry.of(registry.members.values())
    later.claims[2] = "north"
    present, refused = later.call([node(2)])
    assert (present, refused) == ({"north": 2}, [])
    assert later.members["north"] == Member("north", 2, 4, registered=False)


def test_of_two_that_claim_to_be_one_the_known_one_is_let_in() -> None:
    registry = ClientRegistry.of([Member("north", 1, 3)])
    registry.claims[2] = "north"
    present, (refusal,) = registry.call([node(2), node(1)])
    assert present == {"north": 1}
    assert refusal.client == "north"
    assert refusal.reason == "node 2 claims to be it, and so does node 1"


def test_of_two_strangers_that_claim_to_be_one_neither_is_let_in() -> None:
    registry = ClientRegistry(claims={1: 5, 2: 5, 3: 6})
    present, refused = registry.call([node(1), node(2), node(3)])
    assert present == {6: 3}
    assert [(r.client, r.reason.split()[1]) for r in refused] == [(5, "1"), (5, "2")]
    assert 5 not in registry.members
    present, refused = registry.call([node(2), node(3)])  # the other has gone
    assert (present, refused) == ({5: 2, 6: 3}, [])


def test_two_nodes_registered_under_one_name() -> None:
    present, refused = ClientRegistry().call([node(1, "north"), node(2, "north")])
    assert present == {}
    assert len(refused) == 2


def test_nobody_can_claim_a_registered_name() -> None:
    registry = ClientRegistry(claims={2: "north"})
    present, (refusal,) = registry.call([node(2), node(1, "north")])
    assert present == {"north": 1}
    assert refusal.reason == "node 2 claims to be it, and so does node 1"
    later = ClientRegistry.of(registry.members.values())  # also not while its owner is away
    later.claims[2] = "north"
    present, (refusal,) = later.call([node(2)])
    assert present == {}
    assert refusal.reason == "node 2 claims to be it, but is not registered under that name"
    present, refused = later.call([node(3, "north")])  # with a new key
    assert (present, refused) == ({"north": 3}, [])


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ({"partition-id": 0}, 0),
        ({"partition-id": 3, "client-id": "north"}, "north"),
        ({"client-id": 0.5}, None),
        ({}, None),
        *(({"client-id": bad, "partition-id": 3}, 3) for bad in ("", "x" * 200, "a\nb", 1.5)),
    ],
)
def test_what_a_client_calls_itself(sent: dict[str, str | float], name: str | int | None) -> None:
    assert name_in(RecordDict({"any": ConfigRecord(dict(sent))})) == name
    assert name_in(RecordDict()) is None
