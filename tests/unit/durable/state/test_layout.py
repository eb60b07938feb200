"""What the cluster state says about partitions."""

from __future__ import annotations

from flockmq.cluster.commands import CreateHidden
from flockmq.cluster.model import CAPTURE_TOPIC
from flockmq.durable.state.layout import Layout
from flockmq.log.settings import Retention
from partition_cluster import PartitionCluster
from state_cases import Machine


def test_groups_and_their_replicas_follow_the_state() -> None:
    cluster = PartitionCluster(nodes=4, groups=2)
    layout = cluster.nodes[1].layout
    assert layout.groups() == [1, 2]
    assert layout.replicas_of(1) == (1, 2, 3)
    assert layout.replicas_of(9) == ()
    topic = layout.topic_of(2)
    assert topic is not None
    assert topic.name == "t"
    cluster.state.places = {}
    assert layout.groups() == []
    assert layout.retention_of(1) is None


def test_what_is_kept_at_most_for_cursors() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    layout = cluster.nodes[1].layout
    cluster.set_topic(retention_ms=5_000)
    assert layout.retention_of(1) == Retention(age_ms=5_000)
    bounded = Layout(lambda: cluster.state, held_bytes=1_000_000)
    assert bounded.retention_of(1) == Retention(age_ms=5_000, bytes_bound=1_000_000)
    cluster.set_topic(retention_bytes=1_000)
    assert layout.retention_of(1) == Retention(bytes=1_000, bytes_bound=4_000)


def test_only_cursors_that_hold_are_waited_for() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    layout = cluster.nodes[1].layout
    assert layout.holders_of(1) == []
    cluster.set_cursor("a", hold=False)
    cluster.set_cursor("b", hold=True)
    assert layout.holders_of(1) == [cluster.state.cursors["default/b"].key.encode()] == [b"default/b#0"]
    assert layout.holders_of(7) == []
    assert [layout.has_cursor(key) for key in (b"default/a#0", b"default/a#1", b"default/a")] == [True, False, False]


def test_hidden_topics_are_kept_as_they_say_and_are_not_what_a_namespace_stores() -> None:
    machine = Machine(3)
    machine.topic("t")
    machine.done(CreateHidden(CAPTURE_TOPIC))
    layout = Layout(lambda: machine.state)
    assert layout.groups_in({"default"}) == [("default", 1)]
    assert layout.groups() == list(range(1, 10))
    mebibyte = 1_048_576
    hour_ms = 3_600_000
    assert layout.retention_of(9) == Retention(
        age_ms=6 * hour_ms, bytes=64 * mebibyte, bytes_bound=1_024 * mebibyte, age_bound_ms=7 * 24 * hour_ms, names=True
    )
    assert layout.holders_of(9) == [b"$sessions/0", b"$sessions/1", b"$sessions/2", b"$sessions/3"]
    assert layout.has_cursor(b"$sessions/3")
    assert not layout.has_cursor(b"$sessions/4")
