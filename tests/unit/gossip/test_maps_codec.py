"""Messages about maps: there and back, and nothing wrong gets through."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import FlockError
from flockmq.gossip.maps import OwnedMaps
from flockmq.gossip.maps_codec import (
    BUCKET_COUNT,
    CLAIMS,
    DELTA_BYTES,
    FULL_BYTES,
    HAVE,
    PULL,
    DeltaHead,
    FullHead,
    MapsError,
    decode_buckets,
    decode_digest,
    decode_entries,
    decode_list,
    decode_pair,
    decode_progress,
    encode_buckets,
    encode_delta,
    encode_digest,
    encode_entry,
    encode_full,
    encode_list,
    encode_pair,
    encode_progress,
)
from maps_network import SMALL

number = st.integers(0, 2**64 - 1)
pending = st.dictionaries(st.binary(max_size=40), st.none() | st.binary(max_size=40), max_size=5)


@given(number, number, pending)
def test_changes_there_and_back(owner: int, boot: int, changes: dict[bytes, bytes | None]) -> None:
    body = encode_delta(owner, max(boot, 1), 3, 9, changes)
    head = DeltaHead(body)
    assert (head.owner, head.boot, head.first, head.last) == (owner, max(boot, 1), 3, 9)
    assert decode_entries(body, DELTA_BYTES, head.count, 40, 40) == list(changes.items())


@given(st.dictionaries(st.binary(max_size=40), st.binary(max_size=40), max_size=5), st.booleans())
def test_pieces_there_and_back(entries: dict[bytes, bytes], last: bool) -> None:
    encoded = [encode_entry(key, value) for key, value in entries.items()]
    body = encode_full(7, 8, 9, 3, last, len(encoded), encoded)
    head = FullHead(body)
    assert (head.owner, head.boot, head.version, head.index, head.last) == (7, 8, 9, 3, last)
    assert decode_entries(body, FULL_BYTES, head.count, 40, 40) == list(entries.items())


@given(number, st.lists(st.tuples(number, number, number), max_size=5))
def test_lists_there_and_back(mask: int, claims: list[tuple[int, int, int]]) -> None:
    assert decode_list(encode_list(CLAIMS, mask, claims)) == (mask, claims)


@given(number, number, number)
def test_small_ones_there_and_back(one: int, two: int, three: int) -> None:
    assert decode_pair(encode_pair(HAVE, one, two)) == (one, two)
    assert decode_digest(encode_digest(one, two, three)) == (one, two, three)
    assert decode_progress(encode_progress(one, two, three, 5)) == (one, two, three, 5)
    hashes = [one] * (BUCKET_COUNT - 1) + [two]
    assert decode_buckets(encode_buckets(hashes)) == hashes


def test_lengths_beyond_the_limits_are_refused() -> None:
    long_key = encode_delta(1, 1, 0, 1, {b"k" * 41: b""})
    long_value = encode_delta(1, 1, 0, 1, {b"k": b"v" * 41})
    for body in (long_key, long_value):
        with pytest.raises(MapsError, match="41"):
            decode_entries(body, DELTA_BYTES, 1, 40, 40)


def test_counts_that_can_not_be_are_refused_before_anything_is_made_of_them() -> None:
    body = encode_delta(1, 1, 0, 1, {b"k": b"v"})
    with pytest.raises(MapsError, match="4,000,000,000"):
        decode_entries(body, DELTA_BYTES, 4_000_000_000, 40, 40)
    with pytest.raises(MapsError, match="left"):
        decode_entries(body + b"x", DELTA_BYTES, 1, 40, 40)
    with pytest.raises(MapsError, match="longer"):
        decode_entries(body[:-1], DELTA_BYTES, 1, 40, 40)
    huge = bytearray(encode_list(PULL, 0, [(1, 1, 1)]))
    huge[9:13] = b"\xff\xff\xff\xff"
    with pytest.raises(MapsError, match="4,294,967,295"):
        decode_list(bytes(huge))


def test_changes_that_go_nowhere_are_refused() -> None:
    with pytest.raises(MapsError, match="forward"):
        DeltaHead(encode_delta(1, 1, 4, 4, {}))
    with pytest.raises(MapsError, match="forward"):
        DeltaHead(encode_delta(1, 0, 0, 4, {}))


def sound_messages() -> list[bytes]:
    return [
        encode_delta(2, 9, 1, 2, {b"a": b"2", b"b": None, b"c": b"3"}),
        encode_delta(2, 10, 0, 2, {b"a": b"2"}),
        encode_full(2, 9, 5, 0, True, 1, [encode_entry(b"z", b"1")]),
        encode_full(2, 9, 5, 0, False, 1, [encode_entry(b"z", b"1")]),
        encode_list(CLAIMS, 0, [(2, 9, 4)]),
        encode_list(CLAIMS, 2**64 - 1, [(2, 9, 4)]),
        encode_list(PULL, 0, [(1, 0, 0), (2, 0, 0)]),
        encode_pair(HAVE, 5, 0),
        encode_progress(1, 5, 0, 0),
        encode_buckets(list(range(BUCKET_COUNT))),
        b"\x07" + encode_digest(1, 9, 1),
    ]


class Sink:
    def send(self, peer: int, channel: int, body: bytes) -> None:
        pass


def receiver() -> OwnedMaps:
    maps = OwnedMaps(1, 5, Sink(), SMALL, random.Random(1), 0)
    maps.peer_up(2, 0)
    maps.receive(2, encode_delta(2, 9, 0, 1, {b"a": b"1", b"b": b"1"}), 0)
    maps.take_changes()
    return maps


@given(st.binary(max_size=200), st.integers(1, 9))
def test_any_bytes_are_an_error_or_understood(data: bytes, kind: int) -> None:
    maps = receiver()
    try:
        maps.receive(2, bytes([kind]) + data, 0)
    except FlockError:
        assert dict(maps.items(2)) == {b"a": b"1", b"b": b"1"}
        assert maps.take_changes() == []
    maps.take_changes()
    maps.flush(0)
    maps.tick(10_000)


@given(st.sampled_from(sound_messages()), st.data())
def test_damaged_messages_are_an_error_or_understood(message: bytes, data: st.DataObject) -> None:
    maps = receiver()
    damaged = bytearray(message)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(1, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(damaged)))
    try:
        maps.receive(2, bytes(damaged[:cut]), 0)
    except FlockError:
        assert maps.take_changes() == []
        assert maps.place_of(2) == (9, 1)
    maps.take_changes()
    maps.flush(0)
    maps.tick(10_000)


def test_every_truncation_of_a_sound_message_is_refused() -> None:
    for message in sound_messages():
        receiver().receive(2, message, 0)
        for end in range(len(message)):
            with pytest.raises(MapsError):
                receiver().receive(2, message[:end], 0)
