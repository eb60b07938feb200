"""Which level each event of the broker and its drivers has in the log.

What a stranger can cause is at most ``info``: a flood of it is cut to the log's rate and can't bury a warning, which
always means that an operator should look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flockmq.node.events import Event
    from flockmq.server.log import Log

_LEVELS: Final = {
    "connections_dropped": "warning",
    "events_lost": "warning",
    "group_stopped": "error",
    "internal_error": "error",
    "node_conflict": "error",
    "node_dead": "warning",
    "log_damaged": "error",
    "log_differs": "error",
    "log_not_repaired": "error",
    "log_repaired": "warning",
    "retained_ahead": "warning",
    "retained_clock_behind": "warning",
    "retained_damaged": "error",
    "retained_not_saved": "error",
    "retained_over_limit": "warning",
    "retained_rows_unreadable": "error",
    "safety_broken": "error",
    "session_expired": "debug",
    "partition_lost": "error",
    "store_retired": "error",
    "two_voters": "warning",
    "will_published": "debug",
}


_STRANGERS: Final = frozenset({"not_ours", "timeout", "too_many", "silence"})
"""Refusals of links that a program which is no node can cause at will."""


def level_of(event: Event) -> str:
    """The level of an event in the log. A refused link is a warning when the caller or the called is a node."""
    if event.kind == "link_refused":
        return "info" if event.fields.get("kind") in _STRANGERS else "warning"
    return _LEVELS.get(event.kind, "info")


def log_events(log: Log, events: list[Event]) -> None:
    """Write events of the core and the drivers to the log."""
    for event in events:
        log.event(level_of(event), event.kind, **event.fields)
