from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import FlockError
from flockmq.mqtt.packets import Connack, Will
from flockmq.mqtt.properties import Properties
from flockmq.testing.harness_client import HarnessClient
from session_cluster import SessionCluster, SimNode


def cluster_of(count: int, seed: int = 0) -> tuple[SessionCluster, list[SimNode]]:
    cluster = SessionCluster(seed, count, delay_ms=(1, 10))
    cluster.settle()
    return cluster, list(cluster.nodes.values())


def connected(
    cluster: SessionCluster, node: SimNode, client_id: str, will: Will | None = None, clean: bool = False
) -> HarnessClient:
    client = cluster.connect(node, client_id, will=will, clean=clean)
    for _ in range(2_000):
        cluster.step()
        answers = client.received()
        if answers:
            assert isinstance(answers[0], Connack)
            assert answers[0].reason == 0
            return client
    raise AssertionError("no CONNACK came")


def a_will(delay_s: int = 0, retain: bool = False) -> Will:
    properties = Properties()
    properties.will_delay_s = delay_s
    properties.content_type = "text/plain"
    return Will(b"will", b"gone", 1, retain, properties)


def copies(cluster: SessionCluster) -> int:
    return sum(node.wills.held_count for node in cluster.living())


def published(cluster: SessionCluster) -> int:
    return sum(node.wills.published for node in cluster.living())


def holders(cluster: SessionCluster, owner: int, client_id: str) -> list[SimNode]:
    """Who holds the copy, the first one first."""
    order = next(iter(cluster.living())).wills.ranking.top(client_id, 2, owner)
    return [cluster.nodes[node_id] for node_id in order]


def test_two_nodes_hold_a_copy_while_it_is_needed() -> None:
    cluster, nodes = cluster_of(4)
    client = connected(cluster, nodes[0], "x", a_will())
    cluster.settle()
    assert copies(cluster) == 2
    for holder in holders(cluster, nodes[0].node_id, "x"):
        copy = holder.wills.held[nodes[0].node_id]["x"]
        assert copy.will == a_will()
        assert copy.due_at == 0
    client.disconnect()
    cluster.settle()
    assert copies(cluster) == 0
    assert nodes[0].harness.broker.stats.wills_published == 0


def test_a_copy_goes_when_the_will_is_published() -> None:
    cluster, nodes = cluster_of(3)
    connected(cluster, nodes[0], "x", a_will(2)).drop()
    cluster.settle()
    assert copies(cluster) == 2
    cluster.run(2_500)
    cluster.settle()
    assert copies(cluster) == 0
    assert nodes[0].harness.broker.stats.wills_published == 1


def test_the_copy_goes_where_its_session_goes() -> None:
    cluster, nodes = cluster_of(3)
    connected(cluster, nodes[0], "x", a_will(9))
    connected(cluster, nodes[1], "x", a_will(9))
    cluster.settle()
    assert copies(cluster) == 2
    assert not any(nodes[0].node_id in node.wills.held for node in nodes)


def test_the_first_holder_publishes_when_the_node_dies() -> None:
    cluster, nodes = cluster_of(4)
    connected(cluster, nodes[0], "x", a_will(0, retain=True))
    cluster.settle()
    first, second = holders(cluster, nodes[0].node_id, "x")
    cluster.kill(nodes[0].node_id)
    cluster.run(6_000)
    cluster.settle()
    assert (first.wills.published, second.wills.published) == (1, 0)
    assert copies(cluster) == 0
    retained = first.harness.broker.retained.get(b"will", cluster.now)
    assert retained is not None
    assert retained.run.payload(0) == b"gone"


def test_a_delay_is_waited_for() -> None:
    cluster, nodes = cluster_of(4)
    connected(cluster, nodes[0], "x", a_will(20))
    cluster.settle()
    cluster.kill(nodes[0].node_id)
    cluster.run(15_000)
    assert published(cluster) == 0
    cluster.run(9_000)
    assert published(cluster) == 1
    cluster.settle()
    assert copies(cluster) == 0


def test_a_delay_that_began_before_the_node_died_goes_on() -> None:
    cluster, nodes = cluster_of(4)
    connected(cluster, nodes[0], "x", a_will(20)).drop()
    cluster.run(10_000)
    cluster.kill(nodes[0].node_id)
    cluster.run(8_000)
    assert published(cluster) == 0
    cluster.run(3_000)
    assert published(cluster) == 1


@pytest.mark.parametrize(("clean", "expected"), [(False, 0), (True, 1)])
def test_a_client_that_is_back_in_time_has_no_will(clean: bool, expected: int) -> None:
    cluster, nodes = cluster_of(4)
    connected(cluster, nodes[0], "x", a_will(20))
    cluster.settle()
    cluster.kill(nodes[0].node_id)
    cluster.run(5_000)
    cluster.start(12)  # perhaps the new registrar
    cluster.run(2_000)
    connected(cluster, nodes[1], "x", clean=clean)
    cluster.run(30_000)
    cluster.settle()
    assert published(cluster) == expected
    assert copies(cluster) == 0


def test_when_the_first_holder_dies_too() -> None:
    cluster, nodes = cluster_of(5)
    connected(cluster, nodes[0], "x", a_will(0))
    cluster.settle()
    first, _ = holders(cluster, nodes[0].node_id, "x")
    cluster.kill(nodes[0].node_id)
    cluster.kill(first.node_id)
    cluster.run(8_000)
    cluster.settle()
    assert published(cluster) == 1
    assert copies(cluster) == 0


def test_when_the_first_holder_dies_during_the_delay() -> None:
    cluster, nodes = cluster_of(5)
    connected(cluster, nodes[0], "x", a_will(20))
    cluster.settle()
    first, _ = holders(cluster, nodes[0].node_id, "x")
    cluster.kill(nodes[0].node_id)
    cluster.run(8_000)
    assert "x" in first.wills.adopted
    cluster.kill(first.node_id)
    cluster.run(8_000)
    assert published(cluster) == 0
    cluster.run(15_000)
    cluster.settle()
    assert published(cluster) == 1


def test_a_holder_that_missed_the_copy_gets_it_from_the_other() -> None:
    cluster, nodes = cluster_of(4)
    first, second = holders(cluster, nodes[0].node_id, "x")
    cluster.cut(nodes[0].node_id, first.node_id)
    connected(cluster, nodes[0], "x", a_will())
    cluster.run(100)
    assert (first.wills.held_count, second.wills.held_count) == (0, 1)
    cluster.kill(nodes[0].node_id)
    cluster.run(8_000)
    cluster.settle()
    assert (first.wills.published, second.wills.published) == (1, 0)
    assert copies(cluster) == 0


def test_a_node_that_leaves_publishes_its_wills_itself() -> None:
    cluster, nodes = cluster_of(3)
    connected(cluster, nodes[0], "x", a_will())
    connected(cluster, nodes[0], "y", a_will(60))
    cluster.settle()
    nodes[0].harness.broker.shutdown(cluster.now)
    nodes[0].wills.leave(cluster.now)
    cluster.run(50)
    cluster.kill(nodes[0].node_id)
    cluster.run(70_000)
    assert nodes[0].harness.broker.stats.wills_published == 2
    assert published(cluster) == 0
    assert copies(cluster) == 0


def test_a_member_that_left_is_told_apart_from_one_that_died() -> None:
    cluster, nodes = cluster_of(3)
    connected(cluster, nodes[0], "x", a_will())
    cluster.settle()
    for node in nodes[1:]:
        node.wills.peer_left(nodes[0].node_id, cluster.now)
        node.wills.peer_dead(nodes[0].node_id, cluster.now)
    cluster.run(2_000)
    assert sum(node.wills.published for node in nodes[1:]) == 0


def test_a_restart_before_anybody_noticed() -> None:
    """The node is back before it was held dead: its clients are not, and their wills are due."""
    cluster, nodes = cluster_of(4)
    connected(cluster, nodes[0], "x", a_will())
    cluster.settle()
    cluster.kill(nodes[0].node_id)
    cluster.run(200)
    cluster.start(nodes[0].node_id)
    cluster.run(5_000)
    cluster.settle()
    assert published(cluster) == 1
    assert copies(cluster) == 0


def test_copies_move_when_nodes_come_and_go() -> None:
    cluster, nodes = cluster_of(3)
    for number in range(20):
        connected(cluster, nodes[0], f"client-{number}", a_will())
    cluster.start(11)
    cluster.start(12)
    cluster.settle()
    cluster.run(500)
    for number in range(20):
        owners = [
            holder.wills.held[nodes[0].node_id] for holder in holders(cluster, nodes[0].node_id, f"client-{number}")
        ]
        assert all(f"client-{number}" in held for held in owners)
    assert copies(cluster) == 40
    cluster.kill(12)
    cluster.run(6_000)
    cluster.settle()
    assert copies(cluster) == 40
    assert published(cluster) == 0


def test_a_node_wrongly_held_dead_is_believed_again() -> None:
    cluster, nodes = cluster_of(3)
    connected(cluster, nodes[0], "x", a_will())
    cluster.settle()
    cluster.partition([[nodes[0].node_id], [nodes[1].node_id, nodes[2].node_id]])
    cluster.run(8_000)
    assert published(cluster) == 1  # nobody could know better
    cluster.heal()
    cluster.settle()
    assert copies(cluster) == 2
    cluster.kill(nodes[0].node_id)
    cluster.run(8_000)
    assert published(cluster) == 2


@given(st.binary(max_size=200))
def test_garbage_is_refused(body: bytes) -> None:
    cluster = SessionCluster(0, 1)
    (node,) = cluster.nodes.values()
    for attempt in (body, bytes((1 + len(body) % 5,)) + body):
        try:
            node.wills.receive(99, attempt, cluster.now)
        except FlockError:
            continue
        node.wills.tick(cluster.now + 1_000)
        node.wills.flush(cluster.now + 1_000)
