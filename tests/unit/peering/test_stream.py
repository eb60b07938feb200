from __future__ import annotations

from flockmq.peering.stream import BATCH_HEAD, Stream
from flockmq.routing.peer import RUN_OVERHEAD_BYTES
from routing_cases import peer_of

BOOT = 7


def stream_of() -> Stream:
    return Stream(peer_of(1))


def test_what_need_not_be_kept_is_sent_at_once() -> None:
    stream = stream_of()
    assert (
        stream.seal(BOOT, [b"h", b"\x30a", b"h", b"\x31b"], True, True) == BATCH_HEAD.pack(2, BOOT, 0) + b"h\x30ah\x31b"
    )
    assert stream.seal(BOOT, [b"h", b"\x30a"], False, False) is None, "without a link it is lost"
    assert (stream.unacknowledged, stream.next_sequence) == ([], 1)


def test_a_batch_is_kept_without_its_messages_of_qos_0() -> None:
    stream = stream_of()
    assert stream.seal(BOOT, [b"h", b"\x32a", b"i", b"\x30b", b"j", b"\x35c"], True, True) is None
    (kept,) = stream.unacknowledged
    assert kept.body == BATCH_HEAD.pack(2, BOOT, 1) + b"h\x32aj\x35c"
    assert kept.first == BATCH_HEAD.pack(2, BOOT, 1) + b"h\x32ai\x30bj\x35c"
    assert (kept.runs, kept.cost) == (2, 6 + 2 * RUN_OVERHEAD_BYTES)
    stream.seal(BOOT, [b"h", b"\x32a"], True, True)
    assert stream.unacknowledged[1].first is None, "it is the same"


def test_costs_are_those_that_the_peer_counted() -> None:
    stream = stream_of()
    peer = stream.peer
    for wire in (b"\x32one", b"\x30two", b"\x34three"):
        peer.put(b"head", wire, wire[0] >> 1 & 3, 1)
    stream.seal(BOOT, peer.out, True, True)
    assert peer.kept_bytes == stream.unacknowledged[0].cost


def test_acknowledgements_free_what_came_before() -> None:
    stream = stream_of()
    for _ in range(4):
        stream.seal(BOOT, [b"h", b"\x32a"], True, True)
    stream.peer.kept_bytes = sum(kept.cost for kept in stream.unacknowledged)
    stream.sent = 3
    assert stream.first_to_come() == 1
    assert stream.acknowledge(0) == 0
    assert stream.acknowledge(2) == 2
    assert stream.acknowledge(2) == 0
    assert ([kept.sequence for kept in stream.unacknowledged], stream.sent) == ([3, 4], 1)
    assert stream.acknowledge(99) == 2
    assert (stream.peer.kept_bytes, stream.sent, stream.first_to_come()) == (0, 0, 5)
