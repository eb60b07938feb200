"""As much as a client takes, and nothing dropped for want of room."""

from __future__ import annotations

import pytest

from flockmq.durable.deliver.decoding import Piece
from flockmq.durable.deliver.pacing import fits, give, has_room, part_size
from flockmq.mqtt.run import payloads_run
from flockmq.node.settings import Limits
from flockmq.session.bounds import stranger_bounds
from flockmq.session.connection import CONNECTED
from flockmq.session.session import Session
from flockmq.session.stats import Stats
from routing_cases import session_of, subscription_of


def session_with(messages_max: int = 0, bytes_max: int = 0, window: int = 1) -> Session:
    session = session_of("one")
    session.queue_messages_max = messages_max
    session.queue_bytes_max = bytes_max
    session.window = window
    assert session.connection is not None
    session.connection.phase = CONNECTED
    session.connection.version = 5
    return session


def piece_of(count: int, qos: int = 1, size: int = 10) -> Piece:
    return Piece(payloads_run(5, qos, False, b"t", [b"x" * size] * count), 0, 0, b"c")


def give_all(session: Session, piece: Piece) -> int:
    assert session.connection is not None
    return give(session, session.connection, subscription_of(session, b"t", qos=1), 1, piece, Stats(), 0)


def test_a_queue_is_filled_half_and_nothing_is_dropped() -> None:
    session = session_with(messages_max=10)
    assert give_all(session, piece_of(100)) in range(6, 12)
    assert session.dropped == 0
    assert session.connection is not None
    assert not has_room(session, session.connection)


def test_a_queue_of_one_message_takes_one_at_a_time() -> None:
    session = session_with(messages_max=1)
    assert give_all(session, piece_of(5)) == 2  # one in flight, one that waits
    assert session.dropped == 0


def test_bytes_are_bounded() -> None:
    session = session_with(bytes_max=10_000)
    assert 0 < give_all(session, piece_of(100, size=1_000)) < 10
    assert session.outbound is not None
    assert session.outbound.held <= 20_000  # what is in flight and what waits share a run, which counts for both
    assert session.dropped == 0


def test_a_message_larger_than_the_queue_is_dropped_and_counted_as_ever() -> None:
    session = session_with(bytes_max=1_000)
    assert give_all(session, piece_of(1, size=5_000)) == 1
    assert session.dropped == 1


def test_qos_0_is_bounded_by_the_buffer() -> None:
    session = session_with()
    assert session.connection is not None
    session.connection.bounds = stranger_bounds(Limits(write_bytes_max=10_000))
    given = give_all(session, piece_of(1_000, qos=0, size=1_000))
    assert 0 < given < 1_000
    assert session.connection.dropped == 0


def test_whoever_does_not_read_gets_nothing() -> None:
    session = session_with()
    assert session.connection is not None
    session.connection.blocked = True
    assert give_all(session, piece_of(3)) == 0


@pytest.mark.parametrize(("count", "expected"), [(10, True), (11, False)])
def test_a_live_run_fits_whole_or_not_at_all(count: int, expected: bool) -> None:
    session = session_with(messages_max=10)
    assert fits(session, piece_of(count).run) is expected


def test_a_queue_that_is_half_full_takes_no_more_live_runs() -> None:
    session = session_with(messages_max=10, window=1)
    assert session.connection is not None
    session.deliver(piece_of(7).run, 1, False, b"", None, 0)
    assert not fits(session, piece_of(1).run)


def test_a_part_is_never_empty() -> None:
    session = session_with(messages_max=10, bytes_max=300)
    session.deliver(piece_of(1).run, 1, False, b"", None, 0)
    assert session.connection is not None
    assert part_size(session, session.connection, piece_of(5, size=500).run, 1, 2) == 1
