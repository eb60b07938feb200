from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.discovery.announcement import (
    DATAGRAM_BYTES_MAX,
    HERE,
    LEAVING,
    Announcement,
    Directory,
    announcement_key,
    decode,
    encode,
)
from flockmq.errors import FlockError
from flockmq.peering.contact import Contact

KEY = announcement_key(b"cookie")
ME, OTHER = 1, 2
WALL = 1_800_000_000_000
SKEW = 300_000
PLACE = Contact("a.example", 16_000)


def directory(nodes_max: int = 10) -> Directory:
    return Directory(KEY, ME, expiry_ms=10_000, clock_skew_ms_max=SKEW, nodes_max=nodes_max)


def said(at_ms: int = WALL, node_id: int = OTHER, contact: Contact = PLACE, kind: int = HERE) -> bytes:
    return encode(KEY, Announcement(kind, node_id, at_ms, contact))


def test_there_and_back() -> None:
    told = Announcement(HERE, 2**64 - 1, WALL, Contact("fe80::1%eth0", 65_535))
    assert decode(KEY, encode(KEY, told)) == told


def test_only_the_cookie_proves() -> None:
    assert decode(announcement_key(b"other"), said()) is None
    with pytest.raises(FlockError, match="cookie"):
        announcement_key(b"")


@given(st.data())
def test_no_byte_can_be_changed(data: st.DataObject) -> None:
    datagram = bytearray(said())
    position = data.draw(st.integers(0, len(datagram) - 1))
    datagram[position] ^= data.draw(st.integers(1, 255))
    assert decode(KEY, bytes(datagram)) is None


@given(st.binary(max_size=2 * DATAGRAM_BYTES_MAX))
def test_garbage_changes_nothing(datagram: bytes) -> None:
    known = directory()
    known.hear(datagram, 0, WALL)
    known.hear(b"FMQA" + datagram, 0, WALL)
    assert known.contacts(0) == []
    assert known.refused == {"stranger": 2}


def test_who_was_heard_is_listed_until_it_is_quiet() -> None:
    known = directory()
    known.hear(said(), 5_000, WALL)
    known.hear(said(node_id=3, contact=Contact("b", 1)), 9_000, WALL)
    assert known.contacts(15_000) == [PLACE, Contact("b", 1)]
    assert known.contacts(15_001) == [Contact("b", 1)]
    known.hear(said(WALL + 1), 15_002, WALL)
    assert known.contacts(15_002) == [PLACE, Contact("b", 1)]


def test_a_node_does_not_list_itself() -> None:
    known = directory()
    known.hear(said(node_id=ME), 0, WALL)
    assert known.contacts(0) == []


def test_who_leaves_is_gone_at_once_and_repeats_do_not_bring_it_back() -> None:
    known = directory()
    known.hear(said(WALL), 0, WALL)
    known.hear(said(WALL + 2, kind=LEAVING), 1, WALL)
    known.hear(said(WALL), 2, WALL)
    known.hear(said(WALL + 1), 2, WALL)
    assert known.contacts(2) == []
    assert known.refused == {"repeat": 2}
    known.hear(said(WALL + 3), 3, WALL)
    assert known.contacts(3) == [PLACE]


def test_the_same_announcement_on_two_interfaces_is_no_repeat() -> None:
    known = directory()
    known.hear(said(), 0, WALL)
    known.hear(said(), 0, WALL)
    assert not known.refused


def test_repeats_do_not_keep_a_dead_node_alive() -> None:
    known = directory()
    known.hear(said(), 0, WALL)
    for now in range(0, 20_000, 1_000):
        known.hear(said(), now, WALL)
    assert known.contacts(20_000) == []


@pytest.mark.parametrize(("off_by_ms", "listed"), [(SKEW, 1), (-SKEW, 1), (SKEW + 1, 0), (-SKEW - 1, 0)])
def test_old_announcements_are_refused(off_by_ms: int, listed: int) -> None:
    known = directory()
    known.hear(said(WALL + off_by_ms), 0, WALL)
    assert len(known.contacts(0)) == listed
    assert known.refused["clock"] == 1 - listed


def test_memory_is_bounded_and_freed() -> None:
    known = directory(nodes_max=2)
    for node_id in range(2, 6):
        known.hear(said(node_id=node_id, contact=Contact("h", node_id)), 0, WALL)
    assert known.contacts(0) == [Contact("h", 2), Contact("h", 3)]
    assert known.refused == {"full": 2}
    later = WALL + SKEW + 1
    known.hear(said(later, node_id=9, contact=Contact("h", 9)), 1, later)
    assert known.contacts(1) == [Contact("h", 9)]


def test_a_host_that_cannot_be_announced() -> None:
    with pytest.raises(FlockError, match="too long"):
        said(contact=Contact("x" * 256, 1))
