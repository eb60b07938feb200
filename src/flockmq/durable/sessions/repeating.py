"""Statements that are repeated until their result is known: one table, not one task each, however many sessions end.

```
 say(unsaid) --> SessionLog --> a result --> told
                     `--> None: not known in time --> again, at a later tick, until it is too late
 until_said(client) --> all that no client waits for (goodbyes, claims that were given up) has its result
```
A claim waits for that. Otherwise it could be applied first, and the goodbye before it would come to nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.session_bodies import UnsubscribeStatement
from flockmq.session.connection import CONNECTED
from flockmq.tasks import Promise, promised

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.session_bodies import SessionStatement
    from flockmq.durable.sessions.submitting import SessionLog, StatementResult
    from flockmq.session.connection import Connection
    from flockmq.session.session import Session

RETRY_MS: Final = 500
AGAIN_MAX: Final = 5_000
"""Statements that are repeated in one tick."""


class Unsaid:
    """A statement that is repeated until its result is known."""

    def __init__(
        self,
        client: bytes,
        statement: SessionStatement,
        due_at: int,
        told: Callable[[StatementResult | None], None],
        connection: Connection | None,
    ) -> None:
        """``told`` hears the result, or None when it was not known by ``due_at``, or the connection has closed."""
        self.client = client
        self.statement = statement
        self.size = len(statement.content())
        self.due_at = due_at
        self.told = told
        self.connection = connection
        self.session: Session | None = None
        """The session whose subscriptions the statement ends; None: it ends none."""


class Repeating:
    """See the module."""

    def __init__(self, calls: PartitionCalls, log: SessionLog) -> None:
        self._calls = calls
        self._log = log
        self._again: list[Unsaid] = []
        """Statements without a result, to be repeated."""
        self._again_at = 0
        self._open: dict[bytes, int] = {}
        """By client, how many statements have no result yet, of those that no client waits for."""
        self._until: dict[bytes, Promise[None]] = {}
        """By client, what ``until_said`` promised."""

    def until_said(self, client: bytes) -> Promise[None]:
        """Wait until nothing is left to be said of a client that no client waits for."""
        if client not in self._open:
            return promised(None)
        self._again_at = 0  # a client waits for it now
        return self._until.setdefault(client, Promise())

    def say(self, unsaid: Unsaid) -> None:
        """Say a statement until its result is known."""
        if unsaid.connection is None:
            self._open[unsaid.client] = self._open.get(unsaid.client, 0) + 1
        self._say(unsaid)

    def _say(self, unsaid: Unsaid) -> None:
        statement = unsaid.statement
        if unsaid.session is not None and isinstance(statement, UnsubscribeStatement):
            here = unsaid.session.subscriptions  # a filter that the client subscribed to again stays
            statement.full_filters = [one for one in statement.full_filters if one not in here]
        self._log.say(unsaid.client, unsaid.statement, unsaid.size).then(partial(self._said, unsaid))

    def _said(self, unsaid: Unsaid, result: StatementResult | None) -> None:
        is_open = unsaid.connection is None or unsaid.connection.phase == CONNECTED
        if result is None and self._calls.now < unsaid.due_at and is_open:
            self._again.append(unsaid)
            return
        unsaid.told(result)
        if unsaid.connection is None:
            self._close(unsaid.client)

    def _close(self, client: bytes) -> None:
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]
            until = self._until.pop(client, None)
            if until is not None:
                until.set(None)

    def tick(self, now: int) -> None:
        """Repeat statements without a result."""
        if not self._again or now < self._again_at:
            return
        self._again_at = now + RETRY_MS
        again = self._again[:AGAIN_MAX]
        del self._again[:AGAIN_MAX]
        for unsaid in again:
            self._say(unsaid)
