"""Committed batches of any partition, wherever its replicas are.

```
 fetch(group, offset, ...) --> the replica here, the leader, then the other replicas, until one has the offset
                               FETCH: it waits a moment at the end of its log, if asked to

 question: group (8) offset (8) until (8) position (8) size (4) wait (4)
 answer:   OK first (8) end (8) batches | GONE first end | BEHIND 0 end | DAMAGED first end | LOST first end | NOT_HERE
```
An answer is bounded. A batch that is larger comes in pieces: ``position`` says how much of it is here already.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from flockmq.durable.logs.batches import split_batches
from flockmq.durable.logs.local import named
from flockmq.errors import Behind, Damaged, FlockError, NoReplica, OffsetGone, TooLarge
from flockmq.log.batch import BatchError
from flockmq.log.header import HEADER_BYTES, size_of
from flockmq.peering.kinds import FETCH
from flockmq.tasks import Running, Task, within

if TYPE_CHECKING:
    from flockmq.durable.logs.local import LocalLogs
    from flockmq.durable.logs.replica_peers import ReplicaPeers
    from flockmq.durable.logs.watching import Watching
    from flockmq.peering.calls import Calls

OK: Final = 0
GONE: Final = 1
BEHIND: Final = 2
DAMAGED: Final = 3
NOT_HERE: Final = 4
LOST: Final = 5

TIMEOUT_MS: Final = 3_000
WAIT_MS_MAX: Final = 2_000
ANSWER_BYTES_MAX: Final = 512 * 1_024
BATCH_BYTES_MAX: Final = 64 * 1_048_576
"""Largest batch that is put together from pieces."""
_ASK: Final = struct.Struct("<QQQQII")
_HEAD: Final = struct.Struct("<BQQ")


class Lost(Damaged):
    """The records are damaged, and there is no other replica that could have them."""


class Fetched(NamedTuple):
    """What a fetch brought: batches of a log that reaches from ``first`` to ``end``, or the error that says why not."""

    batches: list[bytes]
    first: int
    end: int
    error: FlockError | None = None


class Wanted:
    """What a fetch asks for."""

    def __init__(self, group: int, offset: int, bytes_max: int, wait_ms: int, until: int) -> None:
        self.group = group
        self.offset = offset
        self.until = until
        self.bytes_max = min(max(bytes_max, 1), ANSWER_BYTES_MAX)
        self.wait_ms = min(wait_ms, WAIT_MS_MAX)

    def encode(self, position: int) -> bytes:
        """The question, when so much of a large batch is here."""
        return _ASK.pack(self.group, self.offset, self.until, position, self.bytes_max, self.wait_ms)


class Fetching:
    """Fetches, and serves other nodes."""

    def __init__(self, local: LocalLogs, peers: ReplicaPeers, watching: Watching, calls: Calls) -> None:
        self._local = local
        self._peers = peers
        self._watching = watching
        self._calls = calls
        calls.serve_task(FETCH, self._serve)

    def fetch(self, group: int, offset: int, bytes_max: int, wait_ms: int = 0, until: int = 0) -> Running[Fetched]:
        """Batches from ``offset`` on, from a replica that reaches to ``until``.

        With ``wait_ms`` a replica that has no more waits so long for it. OffsetGone: all replicas that could be asked
        have removed the offset; ``first`` is the oldest offset that one of them has.
        """
        wanted = Wanted(group, offset, bytes_max, wait_ms, until)
        return self._calls.tasks.start("fetch", self._fetch(wanted))

    def _fetch(self, wanted: Wanted) -> Task[Fetched]:
        group = wanted.group
        me = self._peers.node_id
        leader = self._local.leader_of(group)
        replicas = self._peers.all_of(group)
        nodes = sorted([one for one in replicas if one != me], key=lambda one: (one != leader, one))
        due_at = self._calls.now + TIMEOUT_MS + wanted.wait_ms
        failure: FlockError = NoReplica(replicas, named(group))
        for node_id in [me, *nodes] if self._local.is_here(group) else nodes:
            try:
                return (yield from self._fetch_from(node_id, wanted))
            except FlockError as error:
                failure = _worse(failure, error)
            if self._calls.now > due_at:
                break
        first = failure.first if isinstance(failure, OffsetGone) else 0
        return Fetched([], first, 0, failure)

    def _fetch_from(self, node_id: int, wanted: Wanted) -> Task[Fetched]:
        data = b""
        while True:
            question = wanted.encode(len(data))
            if node_id == self._peers.node_id:
                answer = yield from self._serve(node_id, question)
            else:
                answer = yield from self._calls.ask(node_id, FETCH, question, TIMEOUT_MS + WAIT_MS_MAX)
            if answer is None or len(answer) < _HEAD.size:
                raise NoReplica((), named(wanted.group))
            code, first, end = _HEAD.unpack_from(answer)
            if code != OK:
                raise _error(code, first, end, wanted)
            data += answer[_HEAD.size :]
            size = size_of(data, 0) if len(data) >= HEADER_BYTES else 0
            if size > BATCH_BYTES_MAX:
                raise TooLarge(f"A batch of {size:,} bytes can't be passed on between nodes; read it at a replica.")
            if size <= len(data):
                return Fetched(split_batches(data), first, end)
            if len(answer) == _HEAD.size:
                raise BatchError("A batch that comes in pieces ends too early.")

    def _serve(self, peer: int, body: bytes) -> Task[bytes | None]:  # noqa: ARG002
        if len(body) != _ASK.size:
            return None
        group, offset, until, position, bytes_max, wait_ms = _ASK.unpack(body)
        local = self._local
        awaited = max(offset, until - 1)
        if wait_ms and 0 <= local.end(group) <= awaited:
            watch = self._watching.watch({group: awaited})
            if watch is not None:
                yield from within(watch, min(wait_ms, WAIT_MS_MAX))
                watch.cancel()
        try:
            batches = local.read(group, offset, min(bytes_max, ANSWER_BYTES_MAX), until)
            first, end = local.first(group), local.end(group)
        except OffsetGone as error:
            return _HEAD.pack(GONE, error.first, max(local.end(group), 0))
        except Behind as error:
            return _HEAD.pack(BEHIND, 0, error.end)
        except Damaged as error:
            lost = local.lost_until(group, offset)
            return _HEAD.pack(LOST if lost else DAMAGED, error.first, lost or error.end)
        except NoReplica:
            return _HEAD.pack(NOT_HERE, 0, 0)
        data = b"".join(batches)
        if position or len(data) > ANSWER_BYTES_MAX:  # then it is one batch alone
            data = data[position : position + ANSWER_BYTES_MAX]
        return _HEAD.pack(OK, first, end) + data


def _error(code: int, first: int, end: int, wanted: Wanted) -> FlockError:
    of = named(wanted.group)
    if code == GONE:
        return OffsetGone(first, f"Offset {wanted.offset} of {of}")
    if code == BEHIND:
        return Behind(end, max(wanted.offset, wanted.until), of)
    if code == LOST:
        return Lost(first, end, of)
    return Damaged(first, end, of) if code == DAMAGED else NoReplica((), of)


def _worse(one: FlockError, other: FlockError) -> FlockError:
    """Which of two failures says more; of two that are gone, the one with the older beginning."""
    if isinstance(one, OffsetGone) and isinstance(other, OffsetGone):
        return one if one.first <= other.first else other
    weights = (NoReplica, Behind, OffsetGone, Damaged)
    ranks = [weights.index(type(error)) if type(error) in weights else len(weights) for error in (one, other)]
    return other if ranks[1] > ranks[0] else one
