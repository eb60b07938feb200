"""Where a session stands, as bytes: read as it was written, and nothing else is believed."""

from __future__ import annotations

import random

import pytest

from flockmq.durable.sessions.standing import Range, Standing, ranges_of, read_standing, standing_of
from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.run import make_run
from flockmq.session.outbound import Delivery, LogSource, Outbound
from flockmq.session.places import FLOOR, POSITION, START, LogPlace

PLACES = [LogPlace(POSITION, b"", 5, 70), LogPlace(FLOOR, b"", 5, 60), LogPlace(START, b"a/#", 5, 65)]


def delivery(first: int, count: int = 4) -> Delivery:
    run = make_run(5, 2, False, b"t", b"", b"x").part(0, 1)
    return Delivery(run, 0, count, 2, True, b"\x0b\x01", LogSource(5, 100), first)


def seen(ranges: list[Range]) -> list[tuple[int, int, int, int]]:
    return [(one.partition, one.offset, one.count, one.first) for one in ranges]


def standing() -> Standing:
    ranges = [
        Range(5, 100, 3, 2, False, 9, b""),
        Range(6, 7, 1, 1, True, 12, b"\x0b\x01"),
        Range(5, 110, 9, 1, False, 0, b""),
    ]
    return Standing(13, [3, 1], list(PLACES), ranges)


def test_it_is_read_as_it_was_written() -> None:
    found = read_standing(standing().encode())
    assert found.encode() == standing().encode()
    assert [(one.kind, one.topic_filter, one.group, one.offset) for one in found.places] == [
        (one.kind, one.topic_filter, one.group, one.offset) for one in PLACES
    ]
    assert seen(found.ranges) == [(5, 100, 3, 9), (6, 7, 1, 12), (5, 110, 9, 0)]


def test_acknowledged_messages_are_left_out() -> None:
    flight = delivery(20)
    source = LogSource(5, 100)
    assert seen(ranges_of(flight, source)) == [(5, 100, 4, 20)]
    flight.settle(0)
    flight.settle(2)
    assert seen(ranges_of(flight, source)) == [(5, 101, 1, 21), (5, 103, 1, 23)]


def test_messages_of_shared_groups_and_retained_ones_are_not_listed() -> None:
    outbound = Outbound(0, 0)
    other = delivery(1)
    other.group = None
    outbound.flights = [other, delivery(5)]
    assert seen(standing_of(outbound, []).ranges) == [(5, 100, 4, 5)]
    assert standing_of(None, list(PLACES)).ranges == []


def test_what_is_not_there_is_read_again() -> None:
    found = standing()
    found.read_again(
        [Range(5, 62, 1, 1, False, 0, b""), Range(5, 68, 1, 1, False, 0, b""), Range(8, 3, 1, 1, False, 0, b"")]
    )
    assert [(one.group, one.offset) for one in found.places if one.kind == POSITION] == [(5, 62), (8, 3)]


@pytest.mark.parametrize(
    "ranges",
    [
        [Range(5, 1, 1, 2, False, 9, b""), Range(5, 2, 1, 2, False, 9, b"")],
        [Range(5, 1, 1, 2, False, 12, b""), Range(5, 2, 1, 2, False, 9, b"")],
        [Range(5, 1, 1, 2, False, 0, b""), Range(5, 2, 1, 2, False, 9, b"")],
        [Range(5, 1, 3, 2, False, 11, b"")],
        [Range(5, 1, 1, 2, False, 3, b"")],
        [Range(5, 1, 3, 2, False, 65_535, b"")],
        [Range(5, 1, 0, 2, False, 0, b"")],
        [Range(5, 1, 1, 3, False, 0, b"")],
    ],
    ids=["twice", "order", "behind what waits", "not given yet", "being released", "no such id", "none", "qos"],
)
def test_ids_that_can_not_be_are_refused(ranges: list[Range]) -> None:
    with pytest.raises(RemoteProtocolError):
        read_standing(Standing(13, [3, 1], [], ranges).encode())


def test_changed_bytes_do_no_harm() -> None:
    body = standing().encode()
    rng = random.Random(1)
    for _ in range(2_000):
        changed = bytearray(body)
        changed[rng.randrange(len(body))] = rng.randrange(256)
        try:
            read_standing(bytes(changed[: rng.choice([len(body), rng.randrange(len(body))])]))
        except RemoteProtocolError:
            continue
