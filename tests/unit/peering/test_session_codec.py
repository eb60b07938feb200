from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.packets import Will
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.run import Run, make_run
from flockmq.peering.session_codec import (
    GroupName,
    MovedSession,
    decode_rest,
    decode_session,
    encode_rest,
    encode_session,
    read_run,
)
from flockmq.routing.shared import ROUND_ROBIN, ShareGroup
from flockmq.routing.subscription import Subscription
from flockmq.session.outbound import Delivery, LogSource, Outbound
from flockmq.session.places import FLOOR, POSITION, START, LogPlace
from flockmq.session.session import Session

NOW = 1_000_000
ELSEWHERE = 77_000
"""The clock of the node that it goes to."""
TOPICS = st.sampled_from([b"a", b"a/b/c", "täglich/ß".encode(), b"$SYS/x"])


@st.composite
def runs(draw: st.DrawFn) -> Run:
    version = draw(st.sampled_from([4, 5]))
    qos = draw(st.sampled_from([1, 2]))
    topic = draw(TOPICS)
    retain = draw(st.booleans())
    properties = b""
    if version == 5:
        properties = draw(st.sampled_from([b"", b"\x01\x01", b"\x03\x00\x01x", b"\x26\x00\x01a\x00\x01b"]))
    expires_at = draw(st.sampled_from([0, NOW + 1, NOW + 5_000]))
    wires = [
        make_run(version, qos, retain, topic, draw(st.binary(max_size=20)), properties, 0, draw(st.integers(0, 9))).wire
        for _ in range(draw(st.integers(1, 4)))
    ]
    return read_run(b"".join(wires), version, expires_at)


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    session = Session("client", draw(st.sampled_from([4, 5])), NOW - draw(st.integers(0, 10_000)))
    session.peer = draw(st.sampled_from(("", "192.0.2.1", "2001:db8::1")))
    session.username = draw(st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10))
    session.epoch = draw(st.integers(0, 1 << 61))
    session.expiry_s = draw(st.integers(0, 0xFFFF_FFFF))
    session.dropped = draw(st.integers(0, 1000))
    session.is_logged = draw(st.booleans())
    session.record_epoch = draw(st.integers(1, 1 << 61)) if session.is_logged else 0
    for full_filter in draw(st.lists(st.sampled_from([b"a/+", b"#", b"$share/g/b/#", b"x"]), unique=True)):
        group, topic_filter = (b"g", b"b/#") if full_filter.startswith(b"$share") else (b"", full_filter)
        session.subscriptions[full_filter] = Subscription(
            session,
            topic_filter,
            group,
            draw(st.integers(0, 2)),
            draw(st.booleans()),
            draw(st.booleans()),
            draw(st.integers(0, 2)),
            draw(st.integers(0, 268_435_455)),
        )
    if draw(st.booleans()):
        properties = Properties()
        properties.will_delay_s = draw(st.none() | st.integers(0, 100))
        properties.content_type = draw(st.none() | st.just("text"))
        session.will = Will(
            b"will", draw(st.binary(max_size=9)), draw(st.integers(0, 2)), draw(st.booleans()), properties
        )
    session.received = draw(st.none() | st.sets(st.integers(1, 65_535), max_size=5))
    if draw(st.booleans()):
        session.outbound = draw(outbounds())
    return session


@st.composite
def outbounds(draw: st.DrawFn) -> Outbound:
    """Such as come about: offered, launched, acknowledged in any order."""
    outbound = Outbound(0, 0)
    outbound.next_pid = draw(st.sampled_from([1, 5, 65_530, 65_535]))
    group = ShareGroup(b"g", b"b/#", ROUND_ROBIN, random.Random(0))
    for run in draw(st.lists(runs(), max_size=5)):
        qos = draw(st.integers(1, run.qos))
        chosen_by = draw(st.sampled_from([None, group, LogSource(7, 100), LogSource(8, 5)]))
        outbound.offer(run, qos, draw(st.booleans()), draw(st.sampled_from([b"", b"\x0b\x05"])), chosen_by, NOW)
    for _ in range(draw(st.integers(0, 5))):
        outbound.launch(draw(st.integers(1, 3)))
    for pid in outbound.unfinished():
        flight = outbound.flight_of(pid)
        if flight is not None and draw(st.booleans()) and outbound.settle(pid, flight.qos):
            if flight.qos == 1:
                outbound.inflight -= 1
            else:
                outbound.releasing[pid] = True
    return outbound


def seen(delivery: Delivery, now: int) -> list[tuple[object, ...]]:
    """What a client would see of a delivery: each message with its packet id, if it has one."""
    found: list[tuple[object, ...]] = []
    name: object = None
    if isinstance(delivery.group, ShareGroup):
        name = (delivery.group.name, delivery.group.topic_filter)
    elif isinstance(delivery.group, GroupName):
        name = (delivery.group.group, delivery.group.topic_filter)
    run = delivery.run
    for place in delivery.unsettled():
        index = delivery.low + place
        if isinstance(delivery.group, LogSource):
            name = (delivery.group.partition, delivery.group.offset + delivery.skipped + index)
        pid = delivery.first + place if delivery.first else 0
        left = run.expires_at - now if run.expires_at else None
        found.append((pid, run.topic, run.parse(index), delivery.qos, delivery.retain, delivery.properties, left, name))
    return found


def all_seen(outbound: Outbound, now: int) -> list[tuple[object, ...]]:
    return [message for delivery in outbound.waiting_runs() for message in seen(delivery, now)]


def moved(session: Session, expires_in: int = -1, will_in: int = -1) -> MovedSession:
    data = encode_session(session, expires_in, will_in, NOW)
    return decode_session(session.client_id, data, ELSEWHERE, 1_000, 1_000_000)


@given(sessions(), st.integers(-1, 10_000), st.integers(-1, 10_000))
def test_a_session_arrives_as_it_left(session: Session, expires_in: int, will_in: int) -> None:
    other = moved(session, expires_in, will_in)
    found = other.session
    assert other.expires_in == expires_in
    assert found.client_id == session.client_id
    assert found.version == session.version
    assert found.username == session.username
    assert found.peer == session.peer
    assert found.epoch == session.epoch
    assert found.expiry_s == session.expiry_s
    assert found.is_logged == session.is_logged
    assert found.record_epoch == session.record_epoch
    assert ELSEWHERE - found.created_at == NOW - session.created_at
    assert found.dropped == session.dropped
    assert found.will == session.will
    assert other.will_in == (will_in if session.will is not None else -1)
    assert (found.received or set()) == (session.received or set())
    assert list(found.subscriptions) == list(session.subscriptions)
    for full_filter, before in session.subscriptions.items():
        after = found.subscriptions[full_filter]
        assert after.session is found
        assert after.routes_like(before)
        assert (after.group, after.topic_filter) == (before.group, before.topic_filter)
        assert after.retain_handling == before.retain_handling
    assert (found.outbound is None) == (session.outbound is None)
    if session.outbound is not None and found.outbound is not None:
        assert all_seen(found.outbound, ELSEWHERE) == all_seen(session.outbound, NOW)
        assert found.outbound.next_pid == session.outbound.next_pid
        assert list(found.outbound.releasing) == list(session.outbound.releasing)
        assert found.outbound.inflight == session.outbound.inflight
        assert found.outbound.queued == session.outbound.queued
        for pid in session.outbound.unfinished():
            assert found.outbound.flight_of(pid) is not None


@given(outbounds())
def test_the_rest_arrives_as_it_left(outbound: Outbound) -> None:
    data, dropped = encode_rest(outbound, NOW)
    assert dropped == 0
    found = [message for delivery in decode_rest(data, ELSEWHERE) for message in seen(delivery, ELSEWHERE)]
    queue = outbound.queue[outbound.queue_head :]
    assert found == [message for delivery in queue for message in seen(delivery, NOW)]


def test_no_rest() -> None:
    data, dropped = encode_rest(None, NOW)
    assert decode_rest(data, ELSEWHERE) == []
    assert dropped == 0


@given(sessions(), st.data())
def test_anything_else_is_refused_in_words(session: Session, data: st.DataObject) -> None:
    """Whatever is changed in it, a session is read or refused; nothing else can happen."""
    encoded = bytearray(encode_session(session, -1, -1, NOW))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(encoded)))
    for attempt in (bytes(encoded), bytes(encoded[:cut]), bytes(encoded) + b"x"):
        try:
            other = decode_session("client", attempt, ELSEWHERE, 10, 1_000)
        except RemoteProtocolError:
            continue
        encode_session(other.session, other.expires_in, other.will_in, ELSEWHERE)


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_session("client", b"\x02" + data, NOW, 10, 1_000)
    for read in (lambda: decode_session("client", data, NOW, 10, 1_000), lambda: decode_rest(data, NOW)):
        with contextlib.suppress(RemoteProtocolError):
            read()


@given(st.binary(max_size=60), st.sampled_from([4, 5]))
def test_garbage_is_no_run(data: bytes, version: int) -> None:
    try:
        run = read_run(data, version, 0)
    except RemoteProtocolError:
        return
    assert run.wire == data
    for index in range(run.count):
        run.parse(index)


def test_huge_counts_are_refused_before_anything_is_kept() -> None:
    session = Session("client", 5, NOW)
    head = encode_session(session, -1, -1, NOW)[:-8]
    with pytest.raises(RemoteProtocolError, match="list of"):
        decode_session("client", head + b"\xff\xff\xff\x7f" + bytes(4), NOW, 10, 1_000)


def test_what_has_no_room_is_dropped_from_the_end_and_counted() -> None:
    session = Session("client", 5, NOW)
    session.outbound = Outbound(0, 0)
    for number in range(10):
        session.outbound.offer(make_run(5, 1, False, b"t", b"%d" % number * 1_000), 1, False, b"", None)
    data = encode_session(session, -1, -1, NOW, bytes_max=5_500)
    assert len(data) < 6_000
    found = decode_session("client", data, ELSEWHERE, 0, 0).session
    assert found.outbound is not None
    assert [waiting.run.payload(0)[:1] for waiting in found.outbound.queue] == [b"0", b"1", b"2", b"3", b"4"]
    assert found.dropped == 5


def test_what_expired_stays_behind() -> None:
    outbound = Outbound(0, 0)
    outbound.offer(make_run(5, 1, False, b"t", b"old", b"", NOW), 1, False, b"", None, NOW - 1)
    outbound.offer(make_run(5, 1, False, b"t", b"new", b"", NOW + 50), 1, False, b"", None, NOW - 1)
    data, dropped = encode_rest(outbound, NOW)
    found = decode_rest(data, ELSEWHERE)
    assert [delivery.run.payload(0) for delivery in found] == [b"new"]
    assert found[0].run.expires_at == ELSEWHERE + 50
    assert dropped == 1


def test_ids_that_are_for_logs_to_know_do_not_move() -> None:
    """Whoever goes on with the session asks them; what this one says may be old."""
    session = Session("client", 5, NOW)
    session.received = {1, 2, 3}
    found = decode_session("client", encode_session(session, -1, -1, NOW, {2, 4}), NOW, 10, 10).session
    assert found.received == {1, 3}
    session.received = None
    assert decode_session("client", encode_session(session, -1, -1, NOW, {2}), NOW, 10, 10).session.received is None


def test_places_in_logs_travel_with_the_session() -> None:
    session = Session("client", 5, NOW)
    session.places = [LogPlace(POSITION, b"", 5, 70), LogPlace(FLOOR, b"", 5, 90), LogPlace(START, b"a/#", 5, 7)]
    found = decode_session("client", encode_session(session, -1, -1, NOW), ELSEWHERE, 10, 1_000).session.places
    assert found is not None
    expected = [(POSITION, b"", 5, 70), (FLOOR, b"", 5, 90), (START, b"a/#", 5, 7)]
    assert [(place.kind, place.topic_filter, place.group, place.offset) for place in found] == expected


@pytest.mark.parametrize("place", [LogPlace(3, b"", 5, 7), LogPlace(START, b"", 5, 7), LogPlace(POSITION, b"a", 5, 7)])
def test_places_that_can_not_be_are_refused(place: LogPlace) -> None:
    session = Session("client", 5, NOW)
    session.places = [place]
    with pytest.raises(RemoteProtocolError):
        decode_session("client", encode_session(session, -1, -1, NOW), ELSEWHERE, 10, 1_000)
