"""Events for the log: one event, one line. The core collects events, the shell writes them.

The list is bounded, so that a storm of events can't exhaust memory: beyond the bound, events are only counted.
"""

from __future__ import annotations

from typing import Final

EVENTS_MAX: Final = 10_000


class Event:
    """One event. Fields may hold text of clients: the log writer escapes them."""

    def __init__(self, kind: str, fields: dict[str, object]) -> None:
        self.kind = kind
        self.fields = fields


class EventList:
    """Events since they were last taken."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.lost = 0

    def note(self, kind: str, fields: dict[str, object]) -> None:
        """Add an event, or count it as lost when too many wait already."""
        if len(self.events) >= EVENTS_MAX:
            self.lost += 1
            return
        self.events.append(Event(kind, fields))

    def take(self) -> list[Event]:
        """All events since the last call, with a last one that tells how many were lost."""
        taken = self.events
        if taken:
            self.events = []
            if self.lost:
                taken.append(Event("events_lost", {"count": self.lost}))
                self.lost = 0
        return taken
