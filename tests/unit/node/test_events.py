from __future__ import annotations

from flockmq.node.events import EVENTS_MAX, EventList


def test_events_come_in_order_and_once() -> None:
    events = EventList()
    events.note("a", {"x": 1})
    events.note("b", {})
    assert [event.kind for event in events.take()] == ["a", "b"]
    assert events.take() == []


def test_too_many_events_are_counted_instead() -> None:
    events = EventList()
    for _ in range(EVENTS_MAX + 5):
        events.note("a", {})
    taken = events.take()
    assert len(taken) == EVENTS_MAX + 1
    assert (taken[-1].kind, taken[-1].fields) == ("events_lost", {"count": 5})
