from __future__ import annotations

from flockmq.drivers.refusals import PER_PERIOD_MAX, PERIOD_MS, Refusals
from flockmq.node.events import EventList


def test_an_address_is_told_of_once_in_a_while() -> None:
    events = EventList()
    refusals = Refusals(events, "refused")
    for now in range(100):
        refusals.note("192.0.2.1", "cookie", "Another cookie.", now=now)
    refusals.note("192.0.2.2", "garbage", "Nonsense.", peer=7, now=100)
    assert [(event.kind, event.fields) for event in events.take()] == [
        ("refused", {"address": "192.0.2.1", "kind": "cookie", "reason": "Another cookie."}),
        ("refused", {"address": "192.0.2.2", "kind": "garbage", "reason": "Nonsense.", "peer": "0000000000000007"}),
    ]
    refusals.note("192.0.2.1", "cookie", "Another cookie.", now=PERIOD_MS + 1)
    assert [(event.kind, event.fields.get("count")) for event in events.take()] == [
        ("refused_more", 99),
        ("refused", None),
    ]
    assert refusals.counts == {"cookie": 101, "garbage": 1}


def test_a_thousand_addresses_are_not_told_of_at_once() -> None:
    events = EventList()
    refusals = Refusals(events, "refused")
    for number in range(1_000):
        refusals.note(f"192.0.2.{number}", "garbage", "Nonsense.", now=5)
    assert len(events.take()) == PER_PERIOD_MAX
    refusals.note("192.0.2.1", "garbage", "Nonsense.", now=5 + PERIOD_MS)
    assert events.take()[0].fields == {"count": 1_000 - PER_PERIOD_MAX}
