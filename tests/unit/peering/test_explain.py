"""The example of three nodes that people know from EMQ X, and everything that can be in the way of a message."""

from __future__ import annotations

import pytest

from flockmq.admin.cluster_views import routes
from flockmq.errors import FlockError, RemoteProtocolError
from flockmq.peering.drawing import draw_routes, filter_order
from flockmq.peering.explain import (
    CAPTURED_NOTE,
    CLIENTS_MAX,
    NO_LEASE_NOTE,
    Explanation,
    Recipients,
    decode_recipients,
    encode_recipients,
    explain,
    explain_here,
    why_captured,
)
from flockmq.routing.capture import NEVER
from flockmq.routing.durable import DurableTopic
from flockmq.testing.stepped import SteppedCluster, SteppedNode

EXAMPLE = {1: [b"t/+/x", b"t/+/y"], 2: [b"t/#"], 3: [b"t/+/x", b"t/a"]}
"""client1 on node1, client2 on node2, client3 on node3."""

DRAWN = r"""
-------------------------
|            t          |
|           / \         |
|         +     #       |
|        / \            |
|       x   y           |
-------------------------
| t/+/x -> node1, node3 |
| t/+/y -> node1        |
| t/#   -> node2        |
| t/a   -> node3        |
-------------------------
"""

TRACE = """
client1->node1: Publish[t/a]
node1-->node2: Route[t/#]
node1-->node3: Route[t/a]
node2-->client2: Deliver[t/#]
node3-->client3: Deliver[t/a]
"""


def example() -> SteppedCluster:
    cluster = SteppedCluster(3)
    for node_id, filters in EXAMPLE.items():
        client = cluster[node_id].client(f"client{node_id}")
        for topic_filter in filters:
            client.subscribe(topic_filter)
    return cluster


def explained(cluster: SteppedCluster, node_id: int, topic: bytes) -> Explanation:
    node = cluster[node_id]
    return explain(node.broker.node, node.routes, node.name, topic)


def answer(cluster: SteppedCluster, node_id: int, topic: bytes) -> Recipients:
    """What another node is told when it asks this one."""
    return decode_recipients(encode_recipients(explain_here(cluster[node_id].broker.node, topic)))


def traced(cluster: SteppedCluster, node_id: int, topic: bytes, publisher: str) -> list[str]:
    """As the admin side does it: the other nodes are asked."""
    found = explained(cluster, node_id, topic)
    lines = [f"{publisher}->{found.node}: Publish[{found.topic}]"]
    lines += [f"{found.node}-->{hop.name}: Route[{', '.join([*hop.filters, *hop.groups])}]" for hop in found.hops]
    lines += deliveries(found.node, found.here)
    for hop in found.hops:
        lines += deliveries(hop.name, answer(cluster, hop.node_id, topic))
    return lines


def deliveries(name: str, recipients: Recipients) -> list[str]:
    alone: dict[str, list[str]] = {}
    shared: dict[str, list[str]] = {}
    for one in recipients.clients:
        if one.group:
            shared.setdefault(f"$share/{one.group}/{one.topic_filter}", []).append(one.client_id)
        else:
            alone.setdefault(one.client_id, []).append(one.topic_filter)
    lines = [
        f"{name}-->{client}: Deliver[{', '.join(sorted(filters, key=filter_order))}]"
        for client, filters in alone.items()
    ]
    lines += [f"{name}-->one of {', '.join(members)}: Deliver[{group}]" for group, members in sorted(shared.items())]
    return lines


def route_table(node: SteppedNode) -> list[tuple[str, list[str]]]:
    found = [one for one in routes(node.broker, node.name) if one is not None]
    rows = [(f"$share/{one.share_group}/{one.filter}" if one.share_group else one.filter, one.nodes) for one in found]
    return sorted(rows, key=lambda row: filter_order(row[0]))


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_every_node_draws_the_same_trie_and_route_table(node_id: int) -> None:
    node = example()[node_id]
    assert draw_routes(route_table(node)) == DRAWN.strip().splitlines()


def test_the_trace_is_that_of_the_example() -> None:
    assert traced(example(), 1, b"t/a", "client1") == TRACE.strip().splitlines()


def test_the_message_takes_the_way_that_was_explained() -> None:
    cluster = SteppedCluster(3)
    clients = {}
    for node_id, filters in EXAMPLE.items():
        clients[node_id] = cluster[node_id].client(f"client{node_id}")
        for topic_filter in filters:
            clients[node_id].subscribe(topic_filter)
    clients[1].publish(b"t/a", b"hello")
    assert {node_id: client.payloads() for node_id, client in clients.items()} == {1: [], 2: [b"hello"], 3: [b"hello"]}


def test_a_client_gets_one_copy_and_its_filters_are_named_together() -> None:
    cluster = SteppedCluster(2)
    here, there = cluster[1].client("here"), cluster[2].client("there")
    for topic_filter in (b"#", b"t/a", b"t/+"):
        here.subscribe(topic_filter)
        there.subscribe(topic_filter)
    assert traced(cluster, 1, b"t/a", "p") == [
        "p->node1: Publish[t/a]",
        "node1-->node2: Route[t/+, #, t/a]",
        "node1-->here: Deliver[t/+, #, t/a]",
        "node2-->there: Deliver[t/+, #, t/a]",
    ]


def test_groups_name_those_of_whom_one_gets_it() -> None:
    cluster = SteppedCluster(2)
    for name, node_id in (("one", 1), ("two", 1), ("three", 2)):
        cluster[node_id].client(name).subscribe(b"$share/g/t/+")
    assert traced(cluster, 1, b"t/a", "p") == [
        "p->node1: Publish[t/a]",
        "node1-->node2: Route[$share/g/t/+]",
        "node1-->one of one, two: Deliver[$share/g/t/+]",
        "node2-->one of three: Deliver[$share/g/t/+]",
    ]
    (found,) = explained(cluster, 1, b"t/a").filters
    assert (found.topic_filter, found.group, found.nodes) == ("t/+", "g", ["node1", "node2"])
    assert route_table(cluster[2]) == [("$share/g/t/+", ["node1", "node2"])]


def test_explaining_uses_up_no_turn_of_a_group() -> None:
    cluster = SteppedCluster(1)
    clients = [cluster[1].client(str(number)) for number in range(2)]
    for client in clients:
        client.subscribe(b"$share/g/t")
    for _ in range(3):
        explained(cluster, 1, b"t")
    clients[0].publish(b"t", b"x")
    assert clients[0].payloads() == [b"x"]


def test_why_not() -> None:
    cluster = example()
    found = explained(cluster, 1, b"t/b/x")
    assert found.why_not[-1].startswith("ACLs are not considered")
    assert [hop.name for hop in found.hops] == ["node2", "node3"]
    assert explained(cluster, 1, b"nobody").why_not[:3] == [
        "No filter of any node matches (4 are known).",
        "node2: no filter of its clients matches.",
        "node3: no filter of its clients matches.",
    ]
    assert "wildcard" in explained(cluster, 1, b"$x").why_not[0]
    assert "each node's own" in explained(cluster, 1, b"$SYS/broker/uptime").why_not[0]
    assert "waits on this node" in explained(cluster, 1, b"$delayed/5/t/a").why_not[0]


def test_what_is_wrong_with_the_way() -> None:
    cluster = example()
    cluster.cut(1, 2)
    cluster[1].routes.peer_suspect(3, cluster.now)
    two, three = explained(cluster, 1, b"t/a").hops
    assert two.problem == "There is no link to node2: QoS 0 is dropped, QoS 1 and 2 wait (0 bytes)."
    assert three.problem.startswith("node3 is suspected")
    cluster[1].forwarding.peer(3).asked_to_wait = True
    assert "takes no more" in explained(cluster, 1, b"t/a").hops[1].problem
    cluster.kill(3)
    cluster.bury(3)
    assert "node3 is dead: its routes are gone until it returns." in explained(cluster, 1, b"t/a").why_not


def test_clients_that_are_away_are_marked() -> None:
    cluster = SteppedCluster(1)
    client = cluster[1].client("a", session_expiry_s=10)
    client.subscribe(b"t", 1)
    client.drop()
    (one,) = explain_here(cluster[1].broker.node, b"t").clients
    assert (one.client_id, one.qos, one.connected) == ("a", 1, False)


def test_many_clients_are_counted_beyond_a_bound() -> None:
    cluster = SteppedCluster(1)
    for number in range(CLIENTS_MAX + 5):
        cluster[1].client(str(number)).subscribe(b"t")
    found = answer(cluster, 1, b"t")
    assert (len(found.clients), found.more) == (CLIENTS_MAX, 5)


@pytest.mark.parametrize("topic", [b"", b"a/+", b"\xff"])
def test_only_topic_names_can_be_explained(topic: bytes) -> None:
    cluster = SteppedCluster(1)
    with pytest.raises(RemoteProtocolError):
        explained(cluster, 1, topic)
    with pytest.raises(RemoteProtocolError):
        explain_here(cluster[1].broker.node, topic)


@pytest.mark.parametrize("body", [b"", b"x", b"[]", b"{}", b'{"clients": [[1]], "more": 0}', b'{"clients": 5}'])
def test_answers_that_make_no_sense_are_refused(body: bytes) -> None:
    with pytest.raises(FlockError):
        decode_recipients(body)


def test_names_that_persistent_sessions_wait_for_are_said_to_be_captured() -> None:
    cluster = SteppedCluster(1)
    node = cluster[1].broker.node
    assert why_captured(node, b"a/b") == ""
    node.table.capture_in(DurableTopic(b"default", b"$capture", [], [7]))
    assert why_captured(node, b"a/b") == NO_LEASE_NOTE
    node.table.capture.lapses_at = NEVER
    assert why_captured(node, b"a/b") == ""
    node.table.capture.put(0, b"a/+")
    node.table.topics_changed([b"a/+"])
    assert explained(cluster, 1, b"a/b").captured == CAPTURED_NOTE
    assert explained(cluster, 1, b"c").captured == ""
    assert why_captured(node, b"$SYS/a") == ""
