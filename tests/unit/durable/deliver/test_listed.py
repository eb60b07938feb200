"""Offsets that a session reads past: the record lists their messages as under way, or done."""

from __future__ import annotations

from flockmq.durable.deliver.catchup import Catchup
from flockmq.session.places import LISTED, POSITION, LogPlace
from flockmq.session.session import Session


def catchup() -> Catchup:
    made = Catchup(Session("c", 5, 0))
    places = [LogPlace(POSITION, b"", 5, 10)] + [LogPlace(LISTED, b"", 5, offset) for offset in (12, 15, 13)]
    made.take_places(places)
    return made


def test_reading_is_cut_at_listed_offsets_and_goes_on_behind_them() -> None:
    reading = catchup()
    given: list[tuple[int, int]] = []
    low = 10
    while low < 20:
        if reading.is_listed(5, low):
            low += 1
            continue
        high = reading.cut(5, low, 20)
        given.append((low, high))
        low = high
    assert given == [(10, 12), (14, 15), (16, 20)]
    assert not reading.has_listed(5, 20)


def test_a_session_is_not_live_before_it_has_passed_them() -> None:
    reading = catchup()
    assert reading.has_listed(5, 15)
    assert not reading.has_listed(5, 16)
    assert not reading.has_listed(6, 0)


def test_they_go_with_a_session_that_moves() -> None:
    reading = catchup()
    assert reading.has_listed(5, 13)
    moved = Catchup(Session("c", 5, 0))
    moved.take_places(reading.places())
    assert [offset for offset in range(10, 20) if moved.is_listed(5, offset)] == [13, 15]
    reading.drop(5)
    assert reading.places() == []
