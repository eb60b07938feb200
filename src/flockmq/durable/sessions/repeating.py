"""Statements that are repeated until their result is known: one table, not one task each, however many sessions end.

```
 say(unsaid) --> SessionLog --> a result --> told
                     `--> None: not known in time --> again, at a later tick, until it is too late
```
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.session_bodies import UnsubscribeStatement
from flockmq.session.connection import CONNECTED

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

    def say(self, unsaid: Unsaid) -> None:
        """Send a statement, and repeat it until its result is known."""
        statement = unsaid.statement
        if unsaid.session is not None and isinstance(statement, UnsubscribeStatement):
            here = unsaid.session.subscriptions  # a filter that the client subscribed to again stays
            statement.full_filters = [one for one in statement.full_filters if one not in here]
        self._log.say(unsaid.client, unsaid.statement, unsaid.size).then(partial(self._said, unsaid))

    def _said(self, unsaid: Unsaid, result: StatementResult | None) -> None:
        is_open = unsaid.connection is None or unsaid.connection.phase == CONNECTED
        if result is None and self._calls.now < unsaid.due_at and is_open:
            self._again.append(unsaid)
        else:
            unsaid.told(result)

    def tick(self, now: int) -> None:
        """Repeat statements without a result."""
        if not self._again or now < self._again_at:
            return
        self._again_at = now + RETRY_MS
        again = self._again[:AGAIN_MAX]
        del self._again[:AGAIN_MAX]
        for unsaid in again:
            self.say(unsaid)
