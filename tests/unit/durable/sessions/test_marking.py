"""How far the sessions of a node are, as the log hears it."""

from __future__ import annotations

from flockmq.durable.machine.session_bodies import SlowSession
from flockmq.durable.sessions.marking import MARK_MS, folded
from session_nodes import SessionNodes


def test_a_mark_says_how_far_sessions_are() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/b")
    (group,) = nodes.record("c").subscriptions[b"a/b"].starts
    nodes.publish_all(nodes.clean(2, "p"), b"a/b", [b"1", b"2", b"3"])
    device.holds = True
    nodes.run(2 * MARK_MS)
    device.look()
    table = nodes.table("c")
    assert table.position_of(nodes.record("c"), group) == 0
    device.acknowledge(2)
    nodes.run(2 * MARK_MS)
    assert nodes.table("c").position_of(nodes.record("c"), group) == 2
    device.acknowledge(1)
    nodes.run(2 * MARK_MS)
    assert nodes.table("c").position_of(nodes.record("c"), group) == 3


def test_marks_that_say_nothing_new_are_not_said() -> None:
    nodes = SessionNodes()
    nodes.subscriber(1, "c", b"a/b")
    nodes.run(3 * MARK_MS)
    before = nodes.entries()
    nodes.run(3 * MARK_MS)
    assert nodes.entries() == before


def test_a_mark_with_too_many_slow_sessions_is_as_slow_as_they_are() -> None:
    slow = {b"c": SlowSession(1, {1: 30}), b"d": SlowSession(2, {1: 20, 2: 90, 3: 1}), b"e": SlowSession(3, {})}
    levels, listed = folded({1: 100, 2: 100}, slow)
    assert levels == {1: 20, 2: 90}
    assert list(listed) == [b"e"]
