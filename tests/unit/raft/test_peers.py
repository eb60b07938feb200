from __future__ import annotations

from flockmq.raft.clock import TickClock
from flockmq.raft.messages import TimeoutNow
from flockmq.raft.peers import Peer

GAP_MS = 500


def test_frames_of_an_earlier_start_do_not_count() -> None:
    peer = Peer(2, 0)
    clock = TickClock(50, 0)
    clock.tick(50)
    assert peer.heard_frame(5, 1, clock, GAP_MS)
    first = peer.was_restarted
    assert not first, "the first word of a node is no restart"
    assert peer.is_current(5)
    assert not peer.is_current(4)
    clock.tick(100)
    assert peer.heard_frame(6, 1, clock, GAP_MS)
    assert peer.was_restarted
    assert (peer.heard_at, peer.steady_since) == (100, 2)


def test_frames_that_come_late_or_twice_are_known() -> None:
    peer = Peer(2, 0)
    clock = TickClock(50, 0)
    assert [peer.heard_frame(5, number, clock, GAP_MS) for number in (1, 2, 2, 1, 4, 3)] == [
        True,
        True,
        False,
        False,
        True,
        False,
    ]


def test_a_node_is_steady_since_its_last_gap() -> None:
    peer = Peer(2, 0)
    clock = TickClock(50, 0)
    steady = []
    for now in (50, 100, 599, 1_100, 1_200, 1_150):  # a frame each; the clock that goes back is a gap as well
        clock.tick(now)
        peer.heard_frame(5, clock.ticks, clock, GAP_MS)
        steady.append(peer.steady_since)
    assert steady == [1, 1, 1, 4, 4, 6]


def test_what_is_said_leaves_in_one_frame() -> None:
    peer = Peer(2, 0)
    assert not peer.has_something()
    peer.beat_is_due = True
    peer.say(TimeoutNow(1, 1, 2, 3), 10)
    peer.say(TimeoutNow(2, 1, 2, 3), 10)
    messages, number = peer.take()
    assert ([message.group for message in messages], number, peer.out_bytes) == ([1, 2], 1, 0)
    assert not peer.has_something()
