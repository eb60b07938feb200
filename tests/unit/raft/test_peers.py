from __future__ import annotations

from flockmq.raft.messages import TimeoutNow
from flockmq.raft.peers import Peer


def test_frames_of_an_earlier_start_do_not_count() -> None:
    peer = Peer(2, 0)
    assert peer.heard_frame(5, 1, 10, 0)
    first = peer.was_restarted
    assert not first, "the first word of a node is no restart"
    assert peer.is_current(5)
    assert not peer.is_current(4)
    assert peer.heard_frame(6, 1, 20, 0)
    assert peer.was_restarted
    assert peer.heard_at == 20


def test_frames_that_come_late_or_twice_are_known() -> None:
    peer = Peer(2, 0)
    assert [peer.heard_frame(5, number, 10, 0) for number in (1, 2, 2, 1, 4, 3)] == [
        True,
        True,
        False,
        False,
        True,
        False,
    ]


def test_what_is_said_leaves_in_one_frame() -> None:
    peer = Peer(2, 0)
    assert not peer.has_something()
    peer.beat_is_due = True
    peer.say(TimeoutNow(1, 1, 2, 3), 10)
    peer.say(TimeoutNow(2, 1, 2, 3), 10)
    messages, number = peer.take()
    assert ([message.group for message in messages], number, peer.out_bytes) == ([1, 2], 1, 0)
    assert not peer.has_something()
