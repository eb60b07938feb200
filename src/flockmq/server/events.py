"""Which level each event of the broker and its drivers has in the log.

What a stranger can cause is at most ``info``: a flood of it is cut to the log's rate and can't bury a warning, which
always means that somebody should look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flockmq.node.events import Event
    from flockmq.server.log import Log

_LEVELS: Final = {
    "connections_dropped": "warning",
    "events_lost": "warning",
    "internal_error": "error",
    "retained_ahead": "warning",
    "retained_clock_behind": "warning",
    "retained_damaged": "error",
    "retained_not_saved": "error",
    "retained_over_limit": "warning",
    "retained_rows_unreadable": "error",
    "session_expired": "debug",
    "two_voters": "warning",
    "will_published": "debug",
}


def log_events(log: Log, events: list[Event]) -> None:
    """Write events of the core and the drivers to the log."""
    for event in events:
        log.event(_LEVELS.get(event.kind, "info"), event.kind, **event.fields)
