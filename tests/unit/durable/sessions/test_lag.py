"""How many messages may wait in logs for sessions."""

from __future__ import annotations

import pytest

from flockmq.cluster.commands import CreateTopic
from flockmq.durable.sessions.lag import NO_LAG, Lag, SessionLag
from flockmq.durable.sessions.positions import Positions
from session_nodes import SessionNodes


def lag_of(nodes: SessionNodes, number: int, client_id: str) -> Lag | None:
    """Of a session that is away, as a node sees it, from its record."""
    node = nodes[number].durable
    lag = SessionLag(node.logs, node.delivery, Positions(node.delivery))
    asked = node.logs.tasks.start("ends", lag.refresh())
    told: list[None] = []
    asked.then(told.append)
    nodes.until(lambda: bool(told))
    return lag.of_record(nodes.record(client_id), None)


def of_session(nodes: SessionNodes, number: int, client_id: str) -> Lag:
    node = nodes[number].durable
    lag = SessionLag(node.logs, node.delivery, Positions(node.delivery))
    return lag.of_session(node.broker.sessions[client_id])


def test_what_waits_for_a_session_that_is_away_is_counted_on_every_node() -> None:
    nodes = SessionNodes()
    nodes.drop(nodes.subscriber(1, "c", b"a/b"))
    nodes.drop(nodes.subscriber(1, "other", b"x"))
    publisher = nodes.clean(2, "p")
    nodes.publish_all(publisher, b"a/b", [b"1", b"2", b"3"])
    assert [lag_of(nodes, number, "c") for number in (1, 2, 3)] == [Lag(3, 0)] * 3
    assert nodes.got(nodes.connect(3, "c")) == [b"1", b"2", b"3"]


def test_the_count_is_an_upper_bound() -> None:
    nodes = SessionNodes()
    nodes.drop(nodes.subscriber(1, "c", b"a/+"))
    nodes.drop(nodes.subscriber(1, "other", b"x/+"))
    publisher = nodes.clean(2, "p")
    nodes.publish_all(publisher, b"a/b", [b"1"])
    nodes.publish_all(publisher, b"x/b", [b"2", b"3"])
    assert lag_of(nodes, 2, "c") == Lag(3, 0), "a filter with a wildcard reads all shards"


@pytest.mark.parametrize("topic_filter", [b"d/x", b"d/#"])
def test_durable_topics_count(topic_filter: bytes) -> None:
    nodes = SessionNodes()
    nodes.submit(1, CreateTopic("d", filters=("d/#",), shards=2))
    nodes.run(2_000)
    nodes.drop(nodes.subscriber(1, "c", topic_filter))
    nodes.publish_all(nodes.clean(2, "p"), b"d/x", [b"1", b"2"])
    assert lag_of(nodes, 3, "c") == Lag(2, 0)


def test_what_a_session_no_longer_reads_does_not_count() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/+")
    nodes.unsubscribe(device, b"a/+")
    nodes.subscribe(device, b"b/+", qos=0)
    nodes.drop(device)
    nodes.drop(nodes.subscriber(1, "other", b"a/+"))
    nodes.publish_all(nodes.clean(2, "p"), b"a/b", [b"1"])
    assert lag_of(nodes, 3, "c") == NO_LAG


def test_a_log_without_a_majority_is_not_known() -> None:
    nodes = SessionNodes()
    nodes.drop(nodes.subscriber(1, "c", b"a/b"))
    nodes.isolate(1)
    nodes.run(10_000)
    node = nodes[1].durable
    lag = SessionLag(node.logs, node.delivery, Positions(node.delivery))
    node.logs.tasks.start("ends", lag.refresh())
    nodes.run(3_000)
    assert lag.of_record(nodes.record("c"), None) is None


def test_a_connected_session_waits_for_what_it_has_not_acknowledged() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/b")
    device.holds = True
    nodes.publish_all(nodes.clean(2, "p"), b"a/b", [b"1", b"2", b"3"])
    nodes.run(1_000)
    device.look()
    assert len(device.messages) == 3
    assert of_session(nodes, 1, "c") == Lag(3, 0)
    device.acknowledge(2)
    nodes.run(100)
    assert of_session(nodes, 1, "c") == Lag(1, 0)
    device.acknowledge(1)
    nodes.run(100)
    assert of_session(nodes, 1, "c") == NO_LAG
