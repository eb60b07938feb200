"""The partitions that a session's record names, because they may hold its QoS 2 packet ids.

```
 touch ----> TOUCH, applied in the record: the next owner asks these partitions
 untouch --> UNTOUCH, applied --> FORGET in the partitions: they do not know the client any more
                 `--> not known: the record may still name them; the next owner asks them for nothing
 forget ---> FORGET
```
A TOUCH has a higher stamp than all statements before it: an UNTOUCH that is applied late does not undo it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from flockmq.durable.machine.control_bodies import FORGET, Statement
from flockmq.durable.machine.session_bodies import TouchStatement, UntouchStatement
from flockmq.durable.sessions.submitting import DONE
from flockmq.tasks import Sleep

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.session_bodies import SessionStatement
    from flockmq.durable.qos2.telling import Telling
    from flockmq.durable.sessions.submitting import StatementResult
    from flockmq.session.session import Session
    from flockmq.tasks import Promise, Task

RETRY_MS: Final = 200
NOT_KNOWN: Final = -1


class RecordLog(Protocol):
    """The log of session records (``sessions/submitting.py``)."""

    def say(self, client: bytes, statement: SessionStatement, size: int = 64) -> Promise[StatementResult | None]:
        """Send a statement about the session of a client; None: its result is not known."""


class Touching:
    """See the module."""

    def __init__(self, calls: PartitionCalls, log: RecordLog, telling: Telling, sessions: dict[str, Session]) -> None:
        self._calls = calls
        self._log = log
        self._telling = telling
        self._sessions = sessions
        self._stamp = 0

    def touch(self, session: Session, groups: list[int], due_at: int) -> Task[int]:
        """Enter partitions into the record of a session; returns a code of ``submitting``, or ``NOT_KNOWN``."""
        client = session.client_id.encode()
        self._stamp += 1
        statement = TouchStatement(client, session.record_epoch, self._stamp, groups)
        while groups and self._calls.now < due_at and self._sessions.get(session.client_id) is session:
            result = yield from self._log.say(client, statement, 64 + 8 * len(groups))
            if result is not None:
                return result.code
            yield Sleep(RETRY_MS)
        return NOT_KNOWN if groups else DONE

    def untouch(self, client: bytes, epoch: int, groups: list[int], since: int) -> None:
        """Remove partitions from the record: they hold no ids of the session, except of epochs before ``since``."""
        statement = UntouchStatement(client, epoch, self._stamp, groups)
        told = self._log.say(client, statement, 64 + 8 * len(groups))
        told.then(partial(self._was_untouched, statement, since))

    def _was_untouched(self, statement: UntouchStatement, since: int, result: StatementResult | None) -> None:
        if result is not None and result.code == DONE:
            self.forget(statement.client, statement.epoch, statement.groups, since)

    def forget(self, client: bytes, epoch: int, groups: list[int], since: int) -> None:
        """Tell partitions to forget a client and its ids of epochs before ``since``; a client with other ids stays."""
        for group in groups:
            self._telling.tell(group, Statement(FORGET, client, epoch, [], since))
