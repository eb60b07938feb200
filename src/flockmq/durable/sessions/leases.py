"""A publishing node: follows the filters of all persistent sessions, and knows until when it has all of them.

```
 for each shard of $sessions:   ask its leader: "I have version v" --> waits for news --> changes since v, a lease
                                     ^-------------------- at once again: that confirms them ------------'
 the earliest lease lapses --> ``Capture.lapses_at``: from then on this node captures every QoS 1 and 2 message
```
While there are no hidden topics, each node of a cluster of several needs a lease of the cluster state. Without the
lease a node could miss the first persistent session, and acknowledge messages that the session waits for.

| this node knows | ``Capture.lapses_at`` |
| --- | --- |
| ``$sessions`` | when the earliest lease of a shard lapses |
| ``$capture`` alone | now: it captures all |
| no hidden topic, and other nodes | when its lease of the cluster state lapses: it then acknowledges nothing |
| no hidden topic, and no other node | never |

A lease of the state begins with a question to the leader of group 0, and holds once this node has applied all entries
committed by then. So a node that does not know ``$capture`` has no lease ``STATE_LEASE_MS`` after that topic was made
(``hidden.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import OK
from flockmq.durable.sessions.serving import CHANGES, LEASE_MS, WHOLE
from flockmq.errors import RemoteProtocolError
from flockmq.peering.fields import U64, Reader, sized
from flockmq.peering.kinds import LEASE_CALL
from flockmq.routing.capture import NEVER
from flockmq.tasks import Sleep

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.sessions.submitting import SessionLog
    from flockmq.durable.state.meta import Meta
    from flockmq.routing.table import SubscriptionTable
    from flockmq.tasks import Task

ASK_MS: Final = 2_000
RETRY_MS: Final = 100
MARGIN_MS: Final = 300
"""Clocks drift, and a turn takes time: a node's lease ends this much earlier than its leader counts."""
FILTERS_MAX: Final = 1 << 20
FILTERS_AT_ONCE: Final = 2_000
"""Filters that are entered before other work has its turn."""
STATE_LEASE_MS: Final = 5_000
"""Longer than group 0 needs to elect a leader, so that nodes go on acknowledging messages meanwhile."""
STATE_ASK_MS: Final = 1_000
STATE_RENEW_MS: Final = 500
APPLY_MS: Final = 20


class _Shard:
    """The filters and the lease of one shard, as this node has them."""

    def __init__(self, number: int, group: int) -> None:
        self.number = number
        self.group = group
        self.version = 0
        self.until = 0
        self.whole: dict[bytes, None] = {}
        """The whole set as far as it has come."""
        self.whole_version = 0
        """The version of the first piece."""
        self.after = b""


class Leases:
    """See the module."""

    def __init__(
        self, node_id: int, calls: PartitionCalls, meta: Meta, log: SessionLog, table: SubscriptionTable
    ) -> None:
        self._node_id = node_id
        self._calls = calls
        self._meta = meta
        self._log = log
        self._table = table
        self._shards: list[_Shard] = []
        self._state_until = -1
        """When the lease of the cluster state lapses; -1: this node has never asked for one."""
        self._was_alone = False
        self.regained = 0
        """How often a lapsed lease was granted again; this node may have missed messages of a leader meanwhile."""

    def follow(self) -> None:
        """Cluster state has changed: begin to follow the shards, once they are there."""
        if self._shards:
            return
        groups = self._log.groups()
        if groups:
            self._shards = [_Shard(number, group) for number, group in enumerate(groups)]
            for shard in self._shards:
                self._calls.tasks.start("filters of persistent sessions", self._follow(shard))
        elif self._state_until < 0:
            self._state_until = 0
            self._calls.tasks.start("lease of the cluster state", self._follow_state())
        is_alone = self._is_alone()
        if self._was_alone and not is_alone:
            # The only voter has applied every committed entry, up to this change.
            self._state_until = max(self._state_until, self._calls.now + STATE_LEASE_MS - MARGIN_MS)
        self._was_alone = is_alone
        self._count()

    def is_ready(self) -> bool:
        """Whether this node can tell if there are persistent sessions."""
        capture = self._table.capture
        return capture.topic is not None or self._calls.now < capture.lapses_at

    def count_held(self, now: int) -> int:
        """How many shards have granted a lease that holds."""
        return len([shard for shard in self._shards if now < shard.until])

    def is_held(self, now: int) -> bool:
        """Whether this node knows the filters of all persistent sessions."""
        return now < self._table.capture.lapses_at

    def _is_alone(self) -> bool:
        """Whether this node knows for certain that the cluster has no other node."""
        nodes = self._meta.state.nodes
        return self._meta.is_current and len(nodes) == (self._node_id in nodes)

    def _follow_state(self) -> Task[None]:
        """Renew the lease of the cluster state, until the shards take its place."""
        while not self._shards:
            asked_at = self._calls.now
            due_at = asked_at + STATE_LEASE_MS - MARGIN_MS
            index = 0
            if self._meta.state.index and not self._is_alone():
                index = yield from self._meta.committed(STATE_ASK_MS)
                while index > self._meta.state.index and self._calls.now < due_at:
                    yield Sleep(APPLY_MS)
                # The maker of ``$capture`` does not wait for nodes that are not in the state.
                if 0 <= index <= self._meta.state.index and self._node_id in self._meta.state.nodes:
                    self._state_until = max(self._state_until, due_at)
                    self._count()
            yield Sleep(STATE_RENEW_MS if index >= 0 else RETRY_MS)  # without an answer another node may lead

    def _follow(self, shard: _Shard) -> Task[None]:
        while True:
            asked_at = self._calls.now
            question = U64.pack(self._node_id) + U64.pack(shard.version) + sized(shard.after)
            reply = yield from self._calls.ask_leader(shard.group, LEASE_CALL, question, ASK_MS)
            is_known = False
            if reply.code == OK:
                try:
                    reader = Reader(reply.body)
                    self._log.heard(shard.group, reader.number())
                    is_known = yield from self._take(shard, reader)
                except RemoteProtocolError:
                    shard.version = 0
                    shard.after = b""
            if is_known:
                self.regained += 0 < shard.until <= self._calls.now
                shard.until = max(shard.until, asked_at + LEASE_MS - MARGIN_MS)
                self._count()
            if reply.code != OK:
                yield Sleep(RETRY_MS)

    def _take(self, shard: _Shard, reader: Reader) -> Task[bool]:
        """Learn what an answer says; False while only a part of the whole set is here."""
        kind = reader.u8()
        version = reader.number()
        found: list[tuple[bytes, bool]] = []
        for _ in range(reader.count(FILTERS_MAX, 3)):
            is_added = reader.u8() == 1
            found.append((reader.sized(), is_added))
        capture = self._table.capture
        if kind == CHANGES:
            changed = [
                topic_filter
                for topic_filter, is_added in found
                if (capture.put if is_added else capture.remove)(shard.number, topic_filter)
            ]
            self._table.topics_changed(changed)
        else:
            if not shard.after:
                shard.whole = {}
                shard.whole_version = version
            version = shard.whole_version  # later changes follow
            shard.whole.update(dict.fromkeys([topic_filter for topic_filter, _ in found]))
            if kind != WHOLE:
                shard.after = found[-1][0]
                return False
            yield from self._replace(shard)
            shard.whole = {}
            shard.after = b""
        shard.version = version
        return True

    def _replace(self, shard: _Shard) -> Task[None]:
        """Take the whole set, some filters at a time: what is new first, so that none is missing meanwhile."""
        capture = self._table.capture
        fresh = list(shard.whole)
        for at in range(0, len(fresh), FILTERS_AT_ONCE):
            self._table.topics_changed(capture.put_all(shard.number, fresh[at : at + FILTERS_AT_ONCE]))
            yield Sleep(0)
        gone = capture.differing(shard.number, shard.whole)
        for at in range(0, len(gone), FILTERS_AT_ONCE):
            self._table.topics_changed(capture.remove_all(shard.number, gone[at : at + FILTERS_AT_ONCE]))
            yield Sleep(0)

    def _count(self) -> None:
        capture = self._table.capture
        if self._shards:
            capture.lapses_at = min([shard.until for shard in self._shards])
        elif capture.topic is not None:
            capture.lapses_at = 0
        elif not self._meta.state.index or self._is_alone():
            capture.lapses_at = NEVER
        else:
            capture.lapses_at = self._state_until
