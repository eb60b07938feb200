from __future__ import annotations

from flockmq.node.settings import Limits
from flockmq.routing.peer import RUN_OVERHEAD_BYTES, Peer
from flockmq.session.connection import Connection
from flockmq.session.stats import Stats


def peer_of(bytes_max: int = 1_000, dirty: list[Connection] | None = None) -> Peer:
    dirty = dirty if dirty is not None else []
    peer = Peer(7, "node7", 1, Limits(write_bytes_max=bytes_max), 0, dirty, Stats())
    peer.linked = True
    return peer


def test_runs_are_collected_in_order_and_the_peer_is_marked_once() -> None:
    dirty: list[Connection] = []
    peer = peer_of(dirty=dirty)
    assert peer.put(b"h", b"\x30one", 0, 1)
    assert peer.put(b"h", b"\x32two", 1, 2)
    assert peer.out == [b"h", b"\x30one", b"h", b"\x32two"]
    assert (peer.kept_runs, peer.messages_out, dirty) == (1, 3, [peer])


def test_without_a_link_qos_0_is_dropped_and_the_rest_is_kept() -> None:
    peer = peer_of()
    peer.linked = False
    assert not peer.put(b"h", b"\x30x", 0, 3)
    assert peer.put(b"h", b"\x32x", 1, 2)
    assert (peer.dropped, peer.dropped_kept, len(peer.out)) == (3, 0, 2)


def test_beyond_the_bound_nothing_is_taken() -> None:
    peer = peer_of(2 * RUN_OVERHEAD_BYTES + 10)
    assert peer.put(b"h", b"\x32123", 1, 1)
    assert not peer.is_full()
    assert peer.put(b"h", b"\x32123", 2, 1)
    assert peer.is_full()
    assert not peer.put(b"h", b"\x32", 1, 4)
    assert not peer.put(b"h", b"\x30", 0, 5)
    assert (peer.dropped_kept, peer.dropped) == (4, 5)
    peer.take_out(4)
    assert (peer.out, peer.out_bytes, peer.kept_runs) == ([], 0, 0)
    assert peer.is_full(), "nothing is acknowledged yet"
    assert not peer.has_room()


def test_what_is_left_of_a_turn_counts_anew() -> None:
    peer = peer_of(10_000)
    for wire in (b"\x30a", b"\x32b", b"\x34c", b"\x30d"):
        assert peer.put(b"h", wire, wire[0] >> 1 & 3, 1)
    peer.take_out(4)
    assert peer.out == [b"h", b"\x34c", b"h", b"\x30d"]
    assert (peer.kept_runs, peer.out_bytes) == (1, 2 * (3 + RUN_OVERHEAD_BYTES))


def test_a_peer_that_asks_to_wait_is_full() -> None:
    peer = peer_of()
    assert peer.has_room()
    peer.asked_to_wait = True
    assert peer.is_full()
    assert not peer.has_room()
