"""Acknowledgements leave in the order of the messages, whenever their outcomes come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.node.settings import Limits
from flockmq.session.acks import AckQueue, PendingAck
from flockmq.session.bounds import stranger_bounds
from flockmq.session.connection import CONNECTED, Connection
from flockmq.session.stats import Stats


def acks(first: int, count: int) -> bytes:
    return b"".join(b"\x40\x02" + (first + index).to_bytes(2, "big") for index in range(count))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.randoms())
def test_any_order_of_outcomes_keeps_the_order_of_acknowledgements(counts: list[int], rng: object) -> None:
    """A count of 0 is an acknowledgement that waits for nothing itself."""
    assert hasattr(rng, "shuffle")
    connection = Connection(1, "tcp:default", stranger_bounds(Limits()), "192.0.2.1", 0, [], Stats())
    connection.phase = CONNECTED
    connection.acks = AckQueue()
    waiting: list[PendingAck] = []
    expected = b""
    number = 1
    for count in counts:
        data = acks(number, max(count, 1))
        number += max(count, 1)
        expected += data
        if count:
            pending = PendingAck(data, count)
            connection.acks.add(pending)
            waiting += [pending] * count
        else:
            connection.acknowledge(data)
    rng.shuffle(waiting)
    for pending in waiting:
        pending.left -= 1
        connection.go_on_answering()
        assert expected.startswith(b"".join(connection.out))
    assert b"".join(connection.out) == expected
    assert not connection.acks.is_waiting()
    assert connection.acks.messages == 0


def test_an_answer_with_more_words_takes_the_place_of_the_plain_one() -> None:
    pending = PendingAck(acks(1, 3), 3)
    assert [pending.packet_id(position) for position in range(3)] == [1, 2, 3]
    pending.answer(1, b"no")
    assert pending.words() == acks(1, 1) + b"no" + acks(3, 1)


def test_nothing_is_said_to_a_connection_that_is_gone() -> None:
    connection = Connection(1, "tcp:default", stranger_bounds(Limits()), "192.0.2.1", 0, [], Stats())
    connection.acks = AckQueue()
    connection.acks.say(acks(1, 1))
    connection.go_on_answering()
    assert connection.out == []
