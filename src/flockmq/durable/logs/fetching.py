"""Committed batches of any partition, wherever its replicas are: for those who are not in a hurry, such as people.

```
 fetch(group, offset, ...) --> a replica here? --> Reader
                                  | no
                                  v
                               READ to one replica after the other --> its Reader; waits a moment when it is behind
 statuses(groups), heads(groups), times(groups, ms) --> what the leaders say
 status_of(node, groups)                            --> what one replica says
```
Answers are bounded; a batch that is larger than an answer may be comes in pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import ANSWER_BYTES_MAX, OK, TIMEOUT_MS
from flockmq.durable.logs.reading import Behind, Damaged, Gone, NotHere
from flockmq.errors import FlockError, RemoteProtocolError
from flockmq.log.batch import BatchError, BatchView
from flockmq.peering.fields import U32, U64, large
from flockmq.peering.fields import Reader as Fields
from flockmq.peering.kinds import HEADS_CALL, PIECE_CALL, READ_CALL, STATUS_CALL, TIME_CALL
from flockmq.raft.state import DAMAGED as DAMAGED_HEALTH
from flockmq.raft.state import FORGOTTEN, ROLE_NAMES

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls, Replied
    from flockmq.durable.logs.reading import Reader
    from flockmq.durable.replicas.scrubbing import Scrubbing

GONE: Final = 10
BEHIND: Final = 11
NOT_HERE: Final = 12
TOO_LARGE: Final = 13
DAMAGED: Final = 14
"""Answers to READ, besides OK."""
WAIT_MS_MAX: Final = 2_000
GROUPS_MAX: Final = 1_024
BATCHES_MAX: Final = 65_536
BATCH_BYTES_MAX: Final = 64 * 1_048_576
"""Largest batch that is put together from pieces."""
_ASK: Final = struct.Struct("<QQQII")
_PIECE: Final = struct.Struct("<QQQI")
_LARGE: Final = struct.Struct("<QQQ")
"""First and end offset of the log, size of the batch."""
_STATUS: Final = struct.Struct("<BBQQQQQQQQIIQQIQQBBQ")


class TooLarge(FlockError):  # noqa: N818
    """A single batch is larger than what is passed on between nodes."""


class Fetched:
    """What a fetch brought: batches, or the error that says why not."""

    def __init__(self, batches: list[bytes], first: int, end: int, error: FlockError | None = None) -> None:
        self.batches = batches
        self.first = first
        self.end = end
        self.error = error


class ReplicaStatus:
    """How a replica of a group is."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.role = 0
        self.is_broken = False
        self.is_lost = False
        """It is empty or lacks what it acknowledged, and can't vote until a leader has refilled it."""
        self.term = 0
        self.leader = 0
        self.first = 0
        self.end = 0
        self.commit = 0
        self.applied = 0
        self.last = 0
        self.last_term = 0
        """Its last entry, applied or not, and the term of that."""
        self.bytes = 0
        self.segments = 0
        self.damaged = 0
        self.damaged_first = 0
        self.damaged_end = 0
        """Batches that its files do not give back, and the offsets between which they are."""
        self.differs = 0
        self.differs_at = 0
        """Blocks of entries that another replica has otherwise, and the first entry of the first one."""
        self.scrubbed_ms = 0
        """When all of it had been read and verified; 0: not since its node started."""
        self.is_scrubbing = False
        """Whether an operator waits for that."""
        self.is_refilled = False
        """Whether its log was cut at damage and its leader has not sent all of it again."""


FetchedTo = Callable[[Fetched], None]
Heads = Callable[[dict[int, tuple[int, int]], list[int]], None]
"""(first, end) by group, and the groups without an answer."""


class _Fetch:
    def __init__(self, group: int, offset: int, nodes: list[int], reply: FetchedTo, due_at: int) -> None:
        self.group = group
        self.offset = offset
        self.nodes = nodes
        self.reply = reply
        self.due_at = due_at
        self.question = b""
        self.error: FlockError | None = None
        self.node = 0
        """That is being asked."""


class _Large:
    """A batch that comes in pieces."""

    def __init__(self, first: int, end: int, size: int) -> None:
        self.first = first
        self.end = end
        self.size = size
        self.data = bytearray()


class Fetching:
    """See the module."""

    def __init__(self, calls: PartitionCalls, reader: Reader, scrubbing: Scrubbing) -> None:
        self._calls = calls
        self._reader = reader
        self._scrubbing = scrubbing
        calls.serve_node(READ_CALL, self._on_read)
        calls.serve_node(PIECE_CALL, self._on_piece)
        calls.serve_node(STATUS_CALL, self._on_status)
        calls.serve_each(HEADS_CALL, self._on_heads)
        calls.serve_each(TIME_CALL, self._on_time)

    # Batches.

    def fetch(
        self, group: int, offset: int, bytes_max: int, reply: FetchedTo, now: int, until: int = 0, wait_ms: int = 0
    ) -> None:
        """Batches from ``offset`` on; with ``wait_ms`` at the end of the log, or behind, as soon as there are any."""
        self._calls.now = now
        replicas = list(self._calls.layout.replicas_of(group))
        me = self._calls.me
        nodes = [me] if self._reader.end_of(group) >= 0 else []
        leader = self._calls.engine.leader_of(group)
        if leader in replicas and leader != me:
            nodes.append(leader)
        nodes += [node for node in replicas if node not in nodes and node != me]
        fetch = _Fetch(group, offset, nodes, reply, now + TIMEOUT_MS + wait_ms)
        size = min(max(bytes_max, 1), ANSWER_BYTES_MAX)
        fetch.question = _ASK.pack(group, offset, until, size, min(wait_ms, WAIT_MS_MAX))
        self._next(fetch)

    def _next(self, fetch: _Fetch) -> None:
        if not fetch.nodes or self._calls.now > fetch.due_at:
            error = fetch.error or NotHere(fetch.group, self._calls.layout.replicas_of(fetch.group))
            fetch.reply(Fetched([], 0, 0, error))
            return
        node = fetch.nodes.pop(0)
        fetch.node = node
        replied = partial(self._on_answer, fetch)
        self._calls.ask_node(node, READ_CALL, fetch.question, replied, self._calls.now, TIMEOUT_MS + WAIT_MS_MAX)

    def _on_answer(self, fetch: _Fetch, code: int, body: bytes) -> None:
        try:
            fields = Fields(body)
            if code == OK:
                first = fields.u64()
                end = fields.u64()
                batches = [fields.large(len(body)) for _ in range(fields.count(BATCHES_MAX, 4))]
                fetch.reply(Fetched(batches, first, end))
                return
            if code == GONE:
                first = fields.u64()
                fetch.reply(Fetched([], first, fields.u64(), Gone(fetch.group, fetch.offset, first)))
                return
            if code == DAMAGED:
                first = fields.u64()
                fetch.error = Damaged(fetch.group, first, fields.u64())
            elif code == BEHIND and fetch.error is None:
                fetch.error = Behind(fetch.group, fetch.offset, fields.u64())
            elif code == TOO_LARGE:
                first, end, size = _LARGE.unpack_from(body, fields.skip(_LARGE.size))
                if size <= BATCH_BYTES_MAX:
                    self._next_piece(fetch, _Large(first, end, size))
                    return
                text = f"A batch of {size:,} bytes can't be passed on between nodes; read it where a replica is."
                fetch.error = TooLarge(text)
        except RemoteProtocolError as error:
            fetch.error = error
        self._next(fetch)

    def _on_read(self, body: bytes, answer: Replied) -> None:
        fields = Fields(body)
        group, offset, until, bytes_max, wait_ms = _ASK.unpack_from(body, fields.skip(_ASK.size))
        fields.finish()
        if wait_ms and 0 <= self._reader.end_of(group) <= max(offset, until - 1):
            due_at = self._calls.now + min(wait_ms, WAIT_MS_MAX)
            wanted = {group: max(offset, until - 1)}
            again = partial(self._read_now, group, offset, until, bytes_max, answer)
            if self._reader.wait_for(wanted, again, due_at) is not None:
                return
        self._read_now(group, offset, until, bytes_max, answer, [])

    def _read_now(
        self,
        group: int,
        offset: int,
        until: int,
        bytes_max: int,
        answer: Replied,
        grown: list[int],  # noqa: ARG002
    ) -> None:
        reader = self._reader
        try:
            batches = reader.read(group, offset, min(bytes_max, ANSWER_BYTES_MAX), until)
        except Gone as error:
            answer(GONE, U64.pack(error.first) + U64.pack(max(reader.end_of(group), 0)))
            return
        except Behind as error:
            answer(BEHIND, U64.pack(error.end))
            return
        except Damaged as error:
            answer(DAMAGED, U64.pack(error.first) + U64.pack(error.end))
            return
        except NotHere:
            answer(NOT_HERE, b"")
            return
        size = sum([len(batch) + 4 for batch in batches])
        if size > ANSWER_BYTES_MAX + ANSWER_BYTES_MAX // 2:  # then it is one alone
            answer(TOO_LARGE, _LARGE.pack(reader.first_of(group), reader.end_of(group), len(batches[0])))
            return
        head = U64.pack(reader.first_of(group)) + U64.pack(reader.end_of(group)) + U32.pack(len(batches))
        answer(OK, head + b"".join([large(batch) for batch in batches]))

    # Large batches.

    def _next_piece(self, fetch: _Fetch, one: _Large) -> None:
        length = min(ANSWER_BYTES_MAX, one.size - len(one.data))
        question = _PIECE.pack(fetch.group, fetch.offset, len(one.data), length)
        replied = partial(self._on_piece_answer, fetch, one)
        self._calls.ask_node(fetch.node, PIECE_CALL, question, replied, self._calls.now)

    def _on_piece_answer(self, fetch: _Fetch, one: _Large, code: int, body: bytes) -> None:
        if code != OK or not body:
            self._next(fetch)
            return
        one.data += body
        if len(one.data) < one.size:
            self._next_piece(fetch, one)
            return
        batch = bytes(one.data)
        try:
            BatchView(batch).verify()
        except BatchError as error:
            fetch.error = error
            self._next(fetch)
            return
        fetch.reply(Fetched([batch], one.first, one.end))

    def _on_piece(self, body: bytes, answer: Replied) -> None:
        fields = Fields(body)
        group, offset, position, length = _PIECE.unpack_from(body, fields.skip(_PIECE.size))
        fields.finish()
        try:
            batches = self._reader.read(group, offset, 1)
        except (Gone, Behind, NotHere):
            batches = []
        if not batches or position >= len(batches[0]):
            answer(NOT_HERE, b"")
        else:
            answer(OK, batches[0][position : position + min(length, ANSWER_BYTES_MAX)])

    # What leaders say.

    def heads(self, groups: list[int], reply: Heads, now: int, timeout_ms: int = TIMEOUT_MS) -> None:
        """First and end offset of each group, as its leader knows them."""
        self._calls.gather(groups, HEADS_CALL, b"", partial(_read_heads, reply), now, timeout_ms)

    def _on_heads(self, group: int, fields: Fields) -> bytes | None:  # noqa: ARG002
        end = self._reader.committed_end(group)
        return None if end < 0 else U64.pack(self._reader.first_of(group)) + U64.pack(end)

    def times(
        self,
        groups: list[int],
        time_ms: int,
        reply: Callable[[dict[int, int], list[int]], None],
        now: int,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        """Offset of the first record of each group that is not older than ``time_ms``."""
        body = U64.pack(max(time_ms, 0))
        self._calls.gather(groups, TIME_CALL, body, partial(_read_times, reply), now, timeout_ms)

    def _on_time(self, group: int, fields: Fields) -> bytes | None:
        time_ms = fields.u64()
        try:
            return U64.pack(self._reader.offset_at(group, time_ms))
        except NotHere:
            return None

    # What one node says.

    def statuses(
        self, node: int, groups: list[int], reply: Callable[[list[ReplicaStatus] | None], None], now: int
    ) -> None:
        """How the replicas of some groups (at most 1,024) on one node are; None: it did not answer."""
        chosen = groups[:GROUPS_MAX]
        body = U32.pack(len(chosen)) + b"".join([U64.pack(group) for group in chosen])
        self._calls.ask_node(node, STATUS_CALL, body, partial(_read_statuses, reply), now)

    def _on_status(self, body: bytes, answer: Replied) -> None:
        fields = Fields(body)
        groups = [fields.u64() for _ in range(fields.count(GROUPS_MAX, 8))]
        found = [status for status in [self.status(group) for group in groups] if status is not None]
        answer(OK, b"".join([_encode_status(status) for status in found]))

    def status(self, group: int) -> ReplicaStatus | None:
        """How the replica of a group on this node is; None without one."""
        engine = self._calls.engine
        replica = engine.replicas.get(group)
        if replica is None:
            return None
        state = replica.node.state
        status = ReplicaStatus(group)
        status.role = state.role
        status.is_broken = group in engine.host.broken or bool(engine.stopped)
        status.is_lost = state.health == FORGOTTEN
        status.term = state.term
        status.leader = state.leader
        status.first = replica.log.first_offset
        status.end = max(self._reader.end_of(group), 0)
        status.commit = state.commit
        status.applied = state.applied
        status.last = state.log.last_index
        status.last_term = state.log.last_term
        status.bytes = replica.log.size()
        status.segments = len(replica.log.segments)
        scrubbing = self._scrubbing
        status.damaged, status.damaged_first, status.damaged_end = scrubbing.mending.damaged(group)
        status.differs, status.differs_at = scrubbing.digests.differing(group)
        status.scrubbed_ms = scrubbing.finished_ms(group)
        status.is_scrubbing = scrubbing.is_due(group)
        status.is_refilled = state.health == DAMAGED_HEALTH
        return status


def _encode_status(status: ReplicaStatus) -> bytes:
    return U64.pack(status.group) + _STATUS.pack(
        status.role,
        status.is_broken | status.is_lost << 1,
        status.term,
        status.leader,
        status.first,
        status.end,
        status.commit,
        status.applied,
        status.last,
        status.bytes,
        status.segments,
        status.damaged,
        status.damaged_first,
        status.damaged_end,
        status.differs,
        status.differs_at,
        status.scrubbed_ms,
        status.is_scrubbing,
        status.is_refilled,
        status.last_term,
    )


def _read_statuses(reply: Callable[[list[ReplicaStatus] | None], None], code: int, body: bytes) -> None:
    if code != OK or len(body) % (8 + _STATUS.size):
        reply(None)
        return
    found: list[ReplicaStatus] = []
    for at in range(0, len(body), 8 + _STATUS.size):
        status = ReplicaStatus(int.from_bytes(body[at : at + 8], "little"))
        fields: tuple[int, ...] = _STATUS.unpack_from(body, at + 8)
        status.role = min(fields[0], len(ROLE_NAMES) - 1)
        status.is_broken = bool(fields[1] & 1)
        status.is_lost = bool(fields[1] & 2)
        status.term, status.leader, status.first, status.end, status.commit, status.applied = fields[2:8]
        status.last, status.bytes, status.segments = fields[8:11]
        status.damaged, status.damaged_first, status.damaged_end = fields[11:14]
        status.differs, status.differs_at, status.scrubbed_ms = fields[14:17]
        status.is_scrubbing = bool(fields[17])
        status.is_refilled = bool(fields[18])
        status.last_term = fields[19]
        found.append(status)
    reply(found)


def _read_heads(reply: Heads, found: dict[int, bytes], missing: list[int]) -> None:
    heads: dict[int, tuple[int, int]] = {}
    for group, body in found.items():
        fields = Fields(body)
        first = fields.u64()
        heads[group] = (first, fields.u64())
    reply(heads, missing)


def _read_times(
    reply: Callable[[dict[int, int], list[int]], None], found: dict[int, bytes], missing: list[int]
) -> None:
    reply({group: Fields(body).u64() for group, body in found.items()}, missing)
