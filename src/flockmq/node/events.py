"""What happened, for the log: one event, one line. The core collects them, the shell writes them.

The list is bounded: a storm of events must not cost the broker its memory, so what comes when it is full is counted.
"""

from __future__ import annotations

from typing import Final

EVENTS_MAX: Final = 10_000


class Event:
    """One thing that happened. Fields may hold what clients sent: the log writer escapes them."""

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
