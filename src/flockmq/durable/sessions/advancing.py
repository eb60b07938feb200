"""The positions of away sessions move past captured messages that match none of their filters.

Without that, an away session would hold such messages against retention.

```
 the leader of a shard of $sessions, before it moves its holds (``holding.py``):
   records that are away, and stand before the segment that a log of $capture is written to
     --> SEEK: where is the next record that a filter of the session matches? --> ADVANCE: the session stands there
```
The leader asks about a session again when retention removed the session's next record, or when the session has passed
all closed segments and another segment is closed. One pass asks a bounded number of questions; the next pass goes on
behind the last session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from flockmq.durable.logs.seeking import Seek, is_askable
from flockmq.durable.machine.session_bodies import AdvanceStatement, SessionStatement
from flockmq.tasks import Sleep

if TYPE_CHECKING:
    from flockmq.durable.logs.locating import Located
    from flockmq.durable.logs.logs import Logs
    from flockmq.durable.machine.machine import PartitionMachine
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.durable.sessions.serving import SessionShards
    from flockmq.tasks import Task

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

RECORDS: Final = 500
"""Records that are looked at before other work has its turn."""
QUESTIONS_MAX: Final = 5_000
"""Questions of one pass, for one shard."""
AT_ONCE: Final = 250
"""Questions, and statements, that go together."""
REMEMBERED_MAX: Final = 200_000


class Advancing:
    """See the module."""

    def __init__(self, logs: Logs, shards: SessionShards) -> None:
        self._logs = logs
        self._shards = shards
        self._blocked: dict[tuple[bytes, int, int], int] = {}
        """(client, epoch, group of ``$capture``) -> the next record that may be for the session."""
        self._placed: dict[tuple[bytes, int], None] = {}
        """(client, epoch) of sessions whose exact place is their position."""
        self._after: dict[int, bytes] = {}
        """By shard: the client that the last pass ended with, if it did not come to the end."""
        self.asked = 0
        self.advanced = 0
        """Questions asked, and sessions whose position was moved."""

    def advance(self, shard: int, machine: PartitionMachine, ends: dict[int, Located]) -> Task[None]:
        """One pass over the records of a shard that this node leads; ``ends``: of the logs of ``$capture``."""
        closed = yield from self._closed(ends)
        if not closed:
            return
        covers = machine.applied
        table = machine.sessions
        questions: list[tuple[bytes, int, Seek]] = []
        asked = 0
        clients = list(table.records)
        last = self._after.pop(shard, None)
        begin = clients.index(last) + 1 if last is not None and last in table.records else 0
        for number in range(begin, len(clients)):
            if number % RECORDS == RECORDS - 1:
                yield Sleep(0)
            record = table.records.get(clients[number])
            if record is not None and record.captured and not record.is_connected:
                questions += self._questions(record, closed, ends)
            if len(questions) >= AT_ONCE or (questions and number == len(clients) - 1):
                asked += len(questions)
                yield from self._ask(shard, covers, questions)
                questions = []
                if asked >= QUESTIONS_MAX:
                    self._after[shard] = clients[number]
                    return

    def _closed(self, ends: dict[int, Located]) -> Task[dict[int, int]]:
        """By partition of ``$capture``, where the segment begins that is written to."""
        groups = [group for group, found in ends.items() if found.end > found.first]
        told = yield from self._logs.seek([Seek(group, ends[group].end - 1, ()) for group in groups])
        return {group: one.closed for group, one in zip(groups, told, strict=True) if one is not None}

    def _questions(
        self, record: SessionRecord, closed: dict[int, int], ends: dict[int, Located]
    ) -> list[tuple[bytes, int, Seek]]:
        """What to ask about a session."""
        positions = self._positions_of(record, closed)
        found: list[tuple[bytes, int, Seek]] = []
        filters: tuple[bytes, ...] = ()
        for group, offset in positions.items():
            # Removed records may have been for the session: the position stays, so that its client hears of the gap.
            if not ends[group].first <= offset < closed[group] or self._is_blocked(record, group, closed, ends):
                continue
            if not filters:
                filters = tuple([one.full_filter for one in record.subscriptions.values() if one.is_captured()])
                if not is_askable(filters):
                    break
            found.append((record.client, record.epoch, Seek(group, offset, filters)))
        return found

    def _positions_of(self, record: SessionRecord, closed: dict[int, int]) -> dict[int, int]:
        """Where a session stands in these partitions: at its position, else where its first subscription starts."""
        known = record.positions
        found = {group: known[group] for group in closed if group in known}
        key = (record.client, record.epoch)
        if len(found) == len(closed) or key in self._placed:
            return found
        for subscription in record.subscriptions.values():
            if subscription.is_captured():
                for group, start in subscription.starts.items():
                    if group in closed and group not in known:
                        found[group] = min(start, found.get(group, start))
        if all(group in known for group in found):
            _remember(self._placed, key, None)
        return found

    def _is_blocked(self, record: SessionRecord, group: int, closed: dict[int, int], ends: dict[int, Located]) -> bool:
        low = self._blocked.get((record.client, record.epoch, group), -1)
        return ends[group].first <= low < closed[group]

    def _ask(self, shard: int, covers: int, questions: list[tuple[bytes, int, Seek]]) -> Task[None]:
        self.asked += len(questions)
        told = yield from self._logs.seek([seek for _, _, seek in questions])
        moved: dict[tuple[bytes, int], dict[int, int]] = {}
        for (client, epoch, seek), found in zip(questions, told, strict=True):
            if found is None:
                continue
            if found.low < found.high:
                _remember(self._blocked, (client, epoch, seek.group), found.low)
            if found.low > seek.offset:
                moved.setdefault((client, epoch), {})[seek.group] = found.low
        statements: list[SessionStatement] = [
            AdvanceStatement(client, epoch, covers, positions) for (client, epoch), positions in moved.items()
        ]
        if statements and (yield from self._shards.put(shard, statements)):
            self.advanced += len(statements)


def _remember(memory: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Keep an entry; when there is no room, the oldest entry goes."""
    memory[key] = value
    if len(memory) > REMEMBERED_MAX:
        del memory[next(iter(memory))]
