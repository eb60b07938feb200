"""Admission: both limits, told apart, with politeness that has its own bound."""

from __future__ import annotations

from flockmq.drivers.admission import ADMITTED, DROPPED, REFUSALS_PER_S_MAX, Admission, Bucket, Room

QUOTA_EXCEEDED = 0x97
RATE_EXCEEDED = 0x9F


def test_no_limits() -> None:
    admission = Admission(0, 0)
    assert {admission.arrive(1) for _ in range(10_000)} == {ADMITTED}
    assert admission.live == 10_000


def test_connections_at_once() -> None:
    admission = Admission(2, 0)
    assert [admission.arrive(1) for _ in range(3)] == [ADMITTED, ADMITTED, QUOTA_EXCEEDED]
    admission.leave()  # the refused one
    admission.leave()
    assert admission.arrive(1) == ADMITTED


def test_connections_a_second() -> None:
    admission = Admission(0, 2)
    assert [admission.arrive(1000) for _ in range(3)] == [ADMITTED, ADMITTED, RATE_EXCEEDED]
    assert admission.arrive(1499) == RATE_EXCEEDED
    assert admission.arrive(1500) == ADMITTED
    assert [admission.arrive(9000) for _ in range(3)] == [ADMITTED, ADMITTED, RATE_EXCEEDED]  # a burst of one second


def test_a_flood_is_dropped_not_answered() -> None:
    admission = Admission(1, 0)
    codes = [admission.arrive(1000) for _ in range(1000)]
    assert codes.count(QUOTA_EXCEEDED) == REFUSALS_PER_S_MAX
    assert codes[-1] == DROPPED
    assert (admission.live, admission.dropped) == (1 + REFUSALS_PER_S_MAX, 999 - REFUSALS_PER_S_MAX)
    assert admission.arrive(1010) == QUOTA_EXCEEDED  # one more each ten milliseconds


def test_a_bucket_fills_by_the_millisecond() -> None:
    bucket = Bucket(1)
    assert bucket.take(5_000)
    assert not any(bucket.take(5_000 + later) for later in range(1000))
    assert bucket.take(6_000)


def test_all_listeners_share_the_room() -> None:
    room = Room(2)
    one, other = Admission(0, 0, room), Admission(0, 0, room)
    assert [one.arrive(1), other.arrive(1), one.arrive(1)] == [ADMITTED, ADMITTED, QUOTA_EXCEEDED]
    one.leave()
    one.leave()
    assert other.arrive(2) == ADMITTED
