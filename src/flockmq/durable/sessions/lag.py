"""The lag of persistent sessions, for operators: how many messages may wait in logs. Cursors: ``durable/cursors``.

```
 refresh() --LOCATE--> where all logs that sessions read begin and end; good for FRESH_MS
 of_record   session away:        subscriptions --> partitions --> end - position       the ends of the last refresh
 of_session  session of this node: partitions in which it is behind --> next - position   what this node delivers next
```
| figure | meaning |
| --- | --- |
| ``waiting`` | offsets between where the session stands and the end; at most, messages for others are among them |
| ``gone`` | offsets from the position on that retention has removed; some may have been for the session |

A session is where ``restoring.py`` would let it go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from flockmq.durable.deliver.catchup import UNKNOWN
from flockmq.log.starts import LATEST, Start
from flockmq.mqtt.topics import has_wildcard
from flockmq.tasks import within

if TYPE_CHECKING:
    from flockmq.durable.deliver.delivery import Delivery
    from flockmq.durable.logs.locating import Located
    from flockmq.durable.logs.logs import Logs
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.durable.machine.session_table import SessionTable
    from flockmq.durable.sessions.positions import Positions
    from flockmq.session.session import Session
    from flockmq.tasks import Task

FRESH_MS: Final = 1_000
LOCATE_MS: Final = 500
"""After this a partition without a leader counts as not known."""
FILTERS_MAX: Final = 10_000
"""Filters whose partitions are kept."""


class Lag(NamedTuple):
    """See the module."""

    waiting: int
    gone: int


NO_LAG: Final = Lag(0, 0)


class SessionLag:
    """See the module."""

    def __init__(self, logs: Logs, delivery: Delivery, positions: Positions) -> None:
        self._logs = logs
        self._interest = delivery.streams.interest
        self._streams = delivery.streams
        self._positions = positions
        self._ends: dict[int, Located] = {}
        self._asked_at = 0
        self._groups: dict[bytes, list[int]] = {}
        """By filter, the partitions that may hold messages for it; forgotten with each refresh."""

    def refresh(self, fresh_ms: int = FRESH_MS) -> Task[None]:
        """Ask where logs begin and end, unless the last question was within ``fresh_ms``."""
        tasks = self._logs.tasks
        if self._ends and tasks.now - self._asked_at < fresh_ms:
            return
        groups = [group for topic in self._interest.topics.values() for group in topic.groups]
        captured = self._interest.table.capture.topic
        if captured is not None:
            groups += captured.groups
        found = yield from within(self._logs.locate(groups, Start(LATEST), timeout_ms=LOCATE_MS), 2 * LOCATE_MS)
        self._ends = found or {}
        self._groups.clear()
        self._asked_at = tasks.now

    def of_record(self, record: SessionRecord, table: SessionTable | None) -> Lag | None:
        """The lag of an away session; ``table`` is given where this node has it. None: not all logs could be asked."""
        positions: dict[int, int] = {}
        for subscription in record.subscriptions.values():
            if subscription.is_captured():
                for group in self._groups_of(subscription.full_filter):
                    start = subscription.starts.get(group, 0)
                    positions[group] = min(start, positions.get(group, start))
        waiting = 0
        gone = 0
        for group, start in positions.items():
            found = self._ends.get(group)
            if found is None:
                return None
            position = record.positions.get(group, -1) if table is None else table.position_of(record, group)
            if position < 0:
                position = start
            waiting += max(found.end - max(position, found.first), 0)
            gone += max(found.first - position, 0)
        return Lag(waiting, gone)

    def of_session(self, session: Session) -> Lag:
        """The lag of a session of this node."""
        waiting = 0
        for group, position in self._positions.behind(session).items():
            stream = self._streams.by_group.get(group)
            if stream is not None and stream.next != UNKNOWN:
                waiting += max(stream.next - position, 0)
        return Lag(waiting, 0)

    def _groups_of(self, topic_filter: bytes) -> list[int]:
        """As ``Positions.groups_of``, also on a node that reads nothing from the log of captured messages."""
        known = self._groups.get(topic_filter)
        if known is not None:
            return known
        groups = [group for topic in self._interest.overlapping(topic_filter) for group in topic.groups]
        captured = self._interest.table.capture.topic
        if captured is not None:
            groups += captured.groups if has_wildcard(topic_filter) else [captured.group_of(topic_filter)]
        if len(self._groups) < FILTERS_MAX:
            self._groups[topic_filter] = groups
        return groups
