"""Every 5 seconds a node states the positions of its sessions, and checks that they are still its own.

```
 where streams stand --> all sessions are there, but for slow ones (listed with their positions), and those that are
                         uncertain (listed without) --> one MARK per shard
 some sessions in turn --> CHECK --> those that the log has otherwise --> make sure of them (reclaiming.py)
 all of them, when this node could not ask a shard for a while
```
The cost is per node and per slow session, not per session. The node notes the positions of its streams first: each
session that it then looks at has reached at least those positions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.session_bodies import (
    ANY_EPOCH,
    POSITIONS_MAX,
    CheckStatement,
    MarkStatement,
    SlowSession,
    read_named,
)
from flockmq.node.lifecycle import drop_session
from flockmq.peering.fields import Reader
from flockmq.tasks import Sleep, all_of

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.sessions.claims import Uncertain
    from flockmq.durable.sessions.leases import Leases
    from flockmq.durable.sessions.positions import Positions
    from flockmq.durable.sessions.reclaiming import Reclaiming
    from flockmq.durable.sessions.sending import Sending
    from flockmq.durable.sessions.submitting import SessionLog, StatementResult
    from flockmq.node.state import NodeState
    from flockmq.tasks import Promise, Task

MARK_MS: Final = 5_000
MARK_SESSIONS: Final = 500
"""Sessions looked at for a MARK before others have their turn."""
MARK_BYTES: Final = 400 * 1_024
"""Bound of listed slow sessions. Beyond it a MARK lists the uncertain ones alone, and states the position of the
slowest session for all others."""
CHECKED: Final = 500
"""Sessions that a node asks its shards about with each MARK: whether they are still its own."""


class Marking:
    """See the module."""

    def __init__(
        self,
        node: NodeState,
        boot: int,
        calls: PartitionCalls,
        log: SessionLog,
        positions: Positions,
        reclaiming: Reclaiming,
        leases: Leases,
        uncertain: Uncertain,
        sending: Sending,
    ) -> None:
        self._node = node
        self._node_id = calls.me
        self._boot = boot
        self._calls = calls
        self._log = log
        self._positions = positions
        self._reclaiming = reclaiming
        self._leases = leases
        self._regained = 0
        """The count of regained leases at the last check of all sessions."""
        self._uncertain = uncertain
        self._sending = sending
        self._unchecked: list[str] = []
        """Clients whose sessions this round has yet to check."""
        self._marked: dict[int, bytes] = {}
        """Group -> the last MARK that it has applied."""
        self._is_marking = False
        self._mark_at = 0

    def tick(self, now: int) -> None:
        """Send MARK and CHECK when they are due."""
        if (now < self._mark_at and self._leases.regained == self._regained) or self._is_marking:
            return
        self._mark_at = now + MARK_MS
        groups = self._log.groups()
        if groups:
            self._calls.tasks.start("marks of sessions", self._mark(groups))

    def _mark(self, groups: list[int]) -> Task[None]:
        """One MARK per shard."""
        self._is_marking = True
        try:
            covers = dict(self._log.settled)
            levels = self._positions.levels()
            slow: dict[int, dict[bytes, SlowSession]] = {group: {} for group in groups}
            logged: set[int] = set()
            for number, session in enumerate(list(self._node.sessions.values())):
                if number % MARK_SESSIONS == MARK_SESSIONS - 1:
                    yield Sleep(0)
                if session.is_logged and session.connection is not None:
                    group = self._log.group_of(session.client_id.encode())
                    logged.add(group)
                    self._sending.place(session)
                    behind = self._positions.behind(session)
                    if behind:
                        slow[group][session.client_id.encode()] = SlowSession(session.record_epoch, behind)
            self._list_uncertain(slow)
            told = [self._say_mark(group, covers.get(group, 0), levels, slow[group]) for group in logged]
            yield from all_of([one for one in told if one is not None])
            yield from self._check()
        finally:
            self._is_marking = False

    def _list_uncertain(self, slow: dict[int, dict[bytes, SlowSession]]) -> None:
        """List sessions that are not on this node yet, or have left it: the mark must not cover them."""
        for uncertain in (self._uncertain.pending, self._uncertain.leaving):
            for client, epoch in uncertain.items():
                slow[self._log.group_of(client)][client] = SlowSession(epoch, {})
        for client in self._uncertain.unknown:
            slow[self._log.group_of(client)][client] = SlowSession(ANY_EPOCH, {})

    def _say_mark(
        self, group: int, covers: int, levels: dict[int, int], slow: dict[bytes, SlowSession]
    ) -> Promise[StatementResult | None] | None:
        if len(levels) > POSITIONS_MAX:
            levels = dict(list(levels.items())[:POSITIONS_MAX])
        statement = MarkStatement(self._node_id, self._boot, covers, levels, slow)
        encoded = statement.content()
        if len(encoded) > MARK_BYTES:
            statement.positions, statement.slow = folded(levels, slow)
            encoded = statement.content()
        if self._marked.get(group) == encoded or len(encoded) > MARK_BYTES:
            return None  # too large, because many sessions come or go at once; a later mark covers them
        told = self._log.say_to(group, statement, len(encoded))
        told.then(partial(self._was_marked, group, encoded))
        return told

    def _was_marked(self, group: int, encoded: bytes, result: StatementResult | None) -> None:
        if result is not None:
            self._marked[group] = encoded

    def _check(self) -> Task[None]:
        """Ask whether some sessions are still this node's; reclaim the others, or disconnect their clients."""
        is_all = self._regained != self._leases.regained
        self._regained = self._leases.regained
        if is_all or not self._unchecked:
            self._unchecked = [one.client_id for one in self._node.sessions.values() if one.has_record]
        while self._unchecked:
            for group, check in self._checks(self._unchecked[-CHECKED:]).items():
                size = 40 * (len(check.sessions) + len(check.away))
                result = yield from self._log.say_to(group, check, size)
                if result is not None and result.record:
                    self._doubt(Reader(result.record))
            del self._unchecked[-CHECKED:]
            if not is_all:
                break

    def _checks(self, client_ids: list[str]) -> dict[int, CheckStatement]:
        checks: dict[int, CheckStatement] = {}
        for client_id in client_ids:
            session = self._node.sessions.get(client_id)
            if session is not None and session.has_record:
                client = client_id.encode()
                check = checks.setdefault(self._log.group_of(client), CheckStatement([], []))
                named = check.sessions if session.connection is not None else check.away
                named.append((client, session.record_epoch))
        return checks

    def _doubt(self, reader: Reader) -> None:
        while reader.pos < reader.end:
            client, epoch = read_named(reader)
            session = self._node.sessions.get(client.decode())
            if session is None or not session.has_record or session.record_epoch != epoch:
                continue
            if session.connection is not None:
                self._reclaiming.reclaim(session)
            else:
                drop_session(self._node, session, self._node.now)


def folded(levels: dict[int, int], slow: dict[bytes, SlowSession]) -> tuple[dict[int, int], dict[bytes, SlowSession]]:
    """Lower the levels to the positions of slow sessions; the sessions without a known position stay listed."""
    lowest = dict(levels)
    for session in slow.values():
        for group, offset in session.positions.items():
            if group in lowest:
                lowest[group] = min(offset, lowest[group])
    return lowest, {client: session for client, session in slow.items() if not session.positions}
