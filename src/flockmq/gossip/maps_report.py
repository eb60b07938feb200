"""What owned maps tell people: counters, and events for the log."""

from __future__ import annotations

from typing import Final

EVENTS_MAX: Final = 1_000


class MapsEvent:
    """Something a person may want to know: ``map_truncated``, ``map_full`` or ``map_boot_raised``."""

    def __init__(self, kind: str, fields: dict[str, object]) -> None:
        self.kind = kind
        self.fields = fields


class MapsReport:
    """Counted since the start; events since they were last taken."""

    def __init__(self) -> None:
        self.deltas_applied = 0
        self.fulls_applied = 0
        self.gaps = 0
        """Changes that did not follow on what was here: something was lost, and asked for."""
        self.repairs = 0
        """Times that buckets were compared with a peer because its root differed."""
        self.unknown_messages = 0
        self.refused = 0
        """Changes of the own map that its bounds left no room for."""
        self._events: list[MapsEvent] = []

    def note(self, kind: str, fields: dict[str, object]) -> None:
        """Keep an event, unless too many wait already."""
        if len(self._events) < EVENTS_MAX:
            self._events.append(MapsEvent(kind, fields))

    def take_events(self) -> list[MapsEvent]:
        """All events since the last call."""
        events = self._events
        if events:
            self._events = []
        return events
