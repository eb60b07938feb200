"""Which callers were refused, and why: all are counted, a few are logged.

A caller that can reach a port can be refused there a thousand times a second. An address is logged once in a while,
with how often it was refused since; there is a limit for all addresses together, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.drivers.clock import now_ms

if TYPE_CHECKING:
    from flockmq.node.events import EventList

PERIOD_MS: Final = 10_000
PER_PERIOD_MAX: Final = 20


class Refusals:
    """Notes refusals as events of one kind."""

    def __init__(self, events: EventList, event_kind: str) -> None:
        self.counts: dict[str, int] = {}
        """All of them, by reason."""
        self._events = events
        self._event_kind = event_kind
        self._untold: dict[str, int] = {}
        """Address -> refusals since it was told of, in this period."""
        self._period_began = -PERIOD_MS
        self._untold_others = 0

    def note(self, address: str, kind: str, reason: str, peer: int = 0, now: int = -1) -> None:
        """A caller was refused; ``peer`` when its identity is known."""
        now = now_ms() if now < 0 else now
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if now - self._period_began >= PERIOD_MS:
            self._begin_period(now)
        if address in self._untold:
            self._untold[address] += 1
        elif len(self._untold) >= PER_PERIOD_MAX:
            self._untold_others += 1
        else:
            self._untold[address] = 0
            fields: dict[str, object] = {"address": address, "kind": kind, "reason": reason}
            if peer:
                fields["peer"] = f"{peer:016x}"
            self._events.note(self._event_kind, fields)

    def _begin_period(self, now: int) -> None:
        """Tell how many were not told of in the last one."""
        silent = sum(self._untold.values()) + self._untold_others
        if silent:
            self._events.note(f"{self._event_kind}_more", {"count": silent})
        self._untold = {}
        self._untold_others = 0
        self._period_began = now
