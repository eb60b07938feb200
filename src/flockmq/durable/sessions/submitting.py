"""Statements about sessions on their way from this node into the shards of ``$sessions``.

```
 say(client, statement) --> the open call of its shard --flush--> one call at a time to the shard's leader
      a promise of its result <------------------------------------ applied there (serving.py)
                      of None: not known in time; the statement may be said again
```
One call per shard and lane is under way at a time: a storm of connects costs a write per round trip, not per client.
SUBSCRIBE has a lane of its own, because its results wait until all nodes know the filters; UNSUBSCRIBE takes the same
lane, so that the two are applied in the order in which a client said them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.model import DEFAULT_NAMESPACE, SESSIONS_TOPIC
from flockmq.cluster.tables import key_of
from flockmq.durable.calls import OK
from flockmq.durable.machine.session_bodies import (
    CheckStatement,
    MarkStatement,
    SessionStatement,
    SubscribeStatement,
    UnsubscribeStatement,
    encode_statements,
)
from flockmq.errors import RemoteProtocolError
from flockmq.peering.fields import U32, U64, Reader, large, malformed
from flockmq.peering.kinds import SESSION_CALL
from flockmq.routing.durable import shard_of
from flockmq.tasks import Promise, promised

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.state.meta import Meta
    from flockmq.tasks import Task

SUBMIT_MS: Final = 3_000
STATEMENTS_MAX: Final = 256
"""Statements in one call: each result may carry a whole record."""
BYTES_MAX: Final = 256 * 1_024
"""Approximate size at which a call is closed."""
WAITING_MAX: Final = 100_000

DONE: Final = 0
VOID: Final = 1
"""The record has another epoch, or is gone: another owner has the session, or the session has ended."""
REFUSED_USER: Final = 2
REFUSED_FULL: Final = 3
LATER: Final = 4
"""The answer had no room for the result: the node repeats the statement."""
REFUSED_NAMESPACE: Final = 5
REFUSED_SAME_USER: Final = 6
"""A claim beyond the persistent sessions that its namespace, or its user, may have."""


Lane = tuple[int, bool]
"""Group, and whether it is the lane of subscriptions."""


class StatementResult:
    """The result of a statement, and the record after a claim (empty: there is none)."""

    def __init__(self, code: int, record: bytes = b"", state_index: int = 0, index: int = 0) -> None:
        self.code = code
        self.record = record
        self.state_index = state_index
        """The index of cluster state at the shard's leader: positions may be in partitions as new as that index."""
        self.index = index
        """The index of the shard's log at which the result holds."""


class _Open:
    """Statements for a shard that no call has taken yet."""

    def __init__(self) -> None:
        self.statements: list[SessionStatement] = []
        self.told: list[Promise[StatementResult | None]] = []
        self.sizes: list[int] = []


class SessionLog:
    """See the module."""

    def __init__(self, calls: PartitionCalls, meta: Meta) -> None:
        self._calls = calls
        self._node_id = calls.me
        self._meta = meta
        self._open: dict[Lane, _Open] = {}
        self._busy: set[Lane] = set()
        self._waiting = 0
        self._known: dict[int, int] = {}
        """Group -> the highest index of its log that this node has heard of."""
        self.settled: dict[int, int] = {}
        """Group -> the highest index of its log at which a result of this node holds. MARK and CHECK do not count:
        otherwise each mark would be a change that calls for the next mark."""

    def groups(self) -> list[int]:
        """The shards of ``$sessions``; none while no session was ever persistent."""
        topic = self._meta.state.topics.get(key_of(DEFAULT_NAMESPACE, SESSIONS_TOPIC))
        return [] if topic is None else [partition.group for partition in topic.partitions]

    def group_of(self, client: bytes) -> int:
        """The shard that has the session of a client; 0 while there are none."""
        groups = self.groups()
        return groups[shard_of(client, len(groups))] if groups else 0

    def known(self, client: bytes) -> int:
        """The index of the log of a client's shard that this node has heard of."""
        return self._known.get(self.group_of(client), 0)

    def heard(self, group: int, index: int) -> None:
        """A leader has told the index of its shard's log."""
        self._known[group] = max(index, self._known.get(group, 0))

    def say(self, client: bytes, statement: SessionStatement, size: int = 64) -> Promise[StatementResult | None]:
        """Send a statement about the session of a client; ``size``: about how many bytes it has."""
        return self.say_to(self.group_of(client), statement, size)

    def say_to(self, group: int, statement: SessionStatement, size: int = 64) -> Promise[StatementResult | None]:
        """Send a statement to a shard."""
        if not group or self._waiting >= WAITING_MAX:
            return promised(None)
        lane = (group, isinstance(statement, SubscribeStatement | UnsubscribeStatement))
        opened = self._open.get(lane)
        if opened is None:
            opened = self._open[lane] = _Open()
        told: Promise[StatementResult | None] = Promise()
        opened.statements.append(statement)
        opened.told.append(told)
        opened.sizes.append(size)
        self._waiting += 1
        self._calls.engine.wake()
        return told

    def flush(self, now: int) -> None:  # noqa: ARG002
        """A turn ends: call the shards that have waiting statements and no call under way."""
        for lane in [lane for lane in self._open if lane not in self._busy]:
            self._calls.tasks.start("statements about sessions", self._send(lane, self._take(lane)))

    def _take(self, lane: Lane) -> _Open:
        """Take as many statements as one call holds."""
        opened = self._open.pop(lane)
        count = 0
        size = 0
        for one in opened.sizes[:STATEMENTS_MAX]:
            size += one
            if count and size > BYTES_MAX:
                break
            count += 1
        if count < len(opened.sizes):
            rest = self._open[lane] = _Open()
            rest.statements = opened.statements[count:]
            rest.told = opened.told[count:]
            rest.sizes = opened.sizes[count:]
            del opened.statements[count:], opened.told[count:], opened.sizes[count:]
        return opened

    def _send(self, lane: Lane, opened: _Open) -> Task[None]:
        self._busy.add(lane)
        group = lane[0]
        results: list[StatementResult | None] = [None] * len(opened.told)
        try:
            body = encode_statements(opened.statements)
            reply = yield from self._calls.ask_leader(group, SESSION_CALL, U64.pack(self._node_id) + body, SUBMIT_MS)
            if reply.code == OK:
                index, results = read_results(reply.body, len(opened.told))
                self.heard(group, index)
                if any(not isinstance(one, MarkStatement | CheckStatement) for one in opened.statements):
                    self.settled[group] = max(self.settled.get(group, 0), index)
        except RemoteProtocolError:
            pass  # as if the leader had said nothing
        finally:
            self._busy.discard(lane)
            self._waiting -= len(opened.told)
        for told, result in zip(opened.told, results, strict=True):
            told.set(result)
        if lane in self._open:
            self._calls.engine.wake()


def encode_results(index: int, state_index: int, results: list[StatementResult]) -> bytes:
    """Results of a call, with the indexes of the shard's log and of the cluster state at which they hold."""
    parts = [U64.pack(index), U64.pack(state_index), U32.pack(len(results))]
    parts += [bytes((result.code,)) + large(result.record) for result in results]
    return b"".join(parts)


def read_results(body: bytes, count: int) -> tuple[int, list[StatementResult | None]]:
    """Read ``encode_results``."""
    reader = Reader(body)
    index = reader.number()
    state_index = reader.number()
    if reader.count(STATEMENTS_MAX, 5) != count:
        raise malformed("results for other statements")
    results: list[StatementResult | None] = []
    for _ in range(count):
        code = reader.u8()
        record = reader.large(len(body))
        results.append(StatementResult(code, record, state_index, index) if code != LATER else None)
    return index, results
