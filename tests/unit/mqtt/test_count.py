"""The tally against the obvious way to count: one packet at a time out of the whole stream."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.count import ROW_FIRST, Tally, acknowledge, alike


def packet(first: int, body: bytes) -> bytes:
    length = bytearray()
    rest = len(body)
    while True:
        rest, digit = divmod(rest, 128)
        length.append(digit | (0x80 if rest else 0))
        if not rest:
            return bytes((first,)) + bytes(length) + body


def publish(topic: bytes, payload: bytes, qos: int = 0, packet_id: int = 1, flags: int = 0) -> bytes:
    identity = packet_id.to_bytes(2, "big") if qos else b""
    return packet(0x30 | qos << 1 | flags, len(topic).to_bytes(2, "big") + topic + identity + payload)


publishes = st.builds(
    publish,
    st.sampled_from([b"a", b"b", b"a/longer/topic"]),
    st.sampled_from([b"", b"x" * 5, b"y" * 200]),
    st.integers(0, 2),
    st.integers(1, 65_535),
    st.sampled_from([0, 0x08, 0x01]),
)
acknowledgements = st.builds(
    lambda first, packet_id, tail: packet(first, packet_id.to_bytes(2, "big") + tail),
    st.sampled_from([0x40, 0x50, 0x62, 0x70]),
    st.integers(1, 65_535),
    st.sampled_from([b"", b"\x00", b"\x10\x00", b"\x97\x00", b"\x80" + b"\x90\x01" + b"\x1f\x00\x8d" + b"r" * 141]),
)
strange = st.sampled_from([b"\x20\x02\x00\x00", b"\xd0\x00", b"\x90\x03\x00\x01\x00"])
rows = st.tuples(st.one_of(publishes, acknowledgements, strange), st.sampled_from([1, 2, 3, ROW_FIRST, 70]))


class Plain:
    """The oracle: the same numbers, the slow way."""

    def __init__(self, packets: list[bytes]) -> None:
        self.publishes = self.duplicates = self.completed = self.refused = 0
        self.answers = b""
        self.others: list[bytes] = []
        for one in packets:
            self.take(one)

    def take(self, one: bytes) -> None:
        kind = one[0] >> 4
        header = 2
        while one[header - 1] >= 128:
            header += 1
        body = one[header:]
        if kind == 3:
            self.publishes += 1
            self.duplicates += bool(one[0] & 8)
            qos = one[0] >> 1 & 3
            at = 2 + int.from_bytes(body[:2], "big")
            if qos:
                self.answers += bytes((0x30 + 0x10 * qos, 2)) + body[at : at + 2]
        elif 4 <= kind <= 7:
            failed = len(body) > 2 and body[2] >= 0x80
            self.refused += failed
            if kind in {4, 7} or (kind == 5 and failed):
                self.completed += 1
            else:
                self.answers += bytes((0x62 if kind == 5 else 0x70, 2)) + body[:2]
        else:
            self.others.append(one)


@given(st.lists(rows, max_size=12), st.lists(st.integers(1, 700), min_size=1, max_size=6))
def test_counts_as_one_packet_at_a_time_would(parts: list[tuple[bytes, int]], cuts: list[int]) -> None:
    packets = [one for one, count in parts for _ in range(count)]
    stream = b"".join(packets)
    plain = Plain(packets)
    tally = Tally(5)
    answers = b""
    offset = turn = 0
    while offset < len(stream):
        cut = cuts[turn % len(cuts)]
        answers += tally.feed(stream[offset : offset + cut])
        offset += cut
        turn += 1
    assert (tally.publishes, tally.duplicates) == (plain.publishes, plain.duplicates)
    assert (tally.completed, tally.refused) == (plain.completed, plain.refused)
    assert answers == plain.answers
    assert tally.others == plain.others


@given(st.lists(st.integers(1, 65_535), min_size=1, max_size=300), st.sampled_from([1, 2]))
def test_every_packet_id_of_a_row_is_acknowledged(ids: list[int], qos: int) -> None:
    stream = b"".join(publish(b"plant/line/7", b"x" * 64, qos, packet_id) for packet_id in ids)
    first = 0x40 if qos == 1 else 0x50
    expected = b"".join(bytes((first, 2)) + packet_id.to_bytes(2, "big") for packet_id in ids)
    assert Tally(4).feed(stream) == expected


@given(st.binary(max_size=400), st.sampled_from([4, 5]), st.booleans())
def test_garbage_is_counted_or_refused_and_nothing_else(data: bytes, version: int, timed: bool) -> None:
    tally = Tally(version, timed)
    with suppress(RemoteProtocolError):
        tally.feed(data)


@pytest.mark.parametrize(
    ("version", "properties"),
    [(4, b""), (5, b"\x00"), (5, b"\x05\x01\x01\x23\x00\x01"), (5, b"\x80\x01" + b"\x26" * 128)],
)
@pytest.mark.parametrize("qos", [0, 1])
def test_stamps_are_read_from_behind_the_properties(version: int, properties: bytes, qos: int) -> None:
    tally = Tally(version, timed=True)
    stamps = [7, 2**40]
    for stamp in stamps:
        tally.feed(publish(b"t/1", properties + stamp.to_bytes(8, "big") + b"rest", qos))
    assert tally.stamps == stamps
    assert tally.publishes == 2


def test_a_payload_too_short_for_a_stamp_is_counted_all_the_same() -> None:
    tally = Tally(4, timed=True)
    tally.feed(publish(b"t", b"1234"))
    assert (tally.publishes, tally.stamps) == (1, [])


def test_a_remaining_length_of_five_bytes_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="remaining length"):
        Tally(4).feed(b"\x30\xff\xff\xff\xff\x01")


def test_a_row_ends_where_a_column_changes() -> None:
    data = b"\x30\x01a" * 5 + b"\x32\x01a" + b"\x30\x01a"
    assert alike(data, 0, 3, 2, 7) == 5
    assert alike(data, 0, 3, 2, 5) == 5


def test_acknowledge_lays_out_one_packet_for_each_id() -> None:
    assert acknowledge(0x40, b"\x00\x01", b"\x07\x02") == b"\x40\x02\x00\x07\x40\x02\x01\x02"
