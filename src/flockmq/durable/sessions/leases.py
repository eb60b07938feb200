"""A publishing node: follows the filters of all persistent sessions, and knows until when it has all of them.

```
 for each shard of $sessions:   ask its leader: "I have version v" --> waits for news --> changes since v, a lease
                                     ^-------------------- at once again: that confirms them ------------'
 the earliest lease lapses --> ``Capture.lapses_at``: from then on this node captures every QoS 1 and 2 message
```
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
    from flockmq.routing.table import SubscriptionTable
    from flockmq.tasks import Task

ASK_MS: Final = 2_000
RETRY_MS: Final = 100
MARGIN_MS: Final = 300
"""Clocks drift, and a turn takes time: this node stops to rely on a lease earlier than its leader does."""
FILTERS_MAX: Final = 1 << 20


class _Shard:
    """What this node knows of one shard."""

    def __init__(self, number: int, group: int) -> None:
        self.number = number
        self.group = group
        self.version = 0
        self.until = 0
        self.whole: set[bytes] = set()
        """The whole set as far as it has come."""
        self.whole_version = 0
        """The version at which that began."""
        self.after = b""


class Leases:
    """See the module."""

    def __init__(self, node_id: int, calls: PartitionCalls, log: SessionLog, table: SubscriptionTable) -> None:
        self._node_id = node_id
        self._calls = calls
        self._log = log
        self._table = table
        self._shards: list[_Shard] = []

    def follow(self) -> None:
        """Cluster state has changed: begin to follow the shards, once they are there."""
        groups = self._log.groups()
        if self._shards or not groups:
            return
        self._shards = [_Shard(number, group) for number, group in enumerate(groups)]
        self._count()
        for shard in self._shards:
            self._calls.tasks.start("filters of persistent sessions", self._follow(shard))

    def count_held(self, now: int) -> int:
        """How many shards have granted a lease that holds."""
        return len([shard for shard in self._shards if now < shard.until])

    def is_held(self, now: int) -> bool:
        """Whether this node knows the filters of all persistent sessions."""
        return now < self._table.capture.lapses_at

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
                    is_known = self._take(shard, reader)
                except RemoteProtocolError:
                    shard.version = 0
                    shard.after = b""
            if is_known:
                shard.until = max(shard.until, asked_at + LEASE_MS - MARGIN_MS)
                self._count()
            if reply.code != OK:
                yield Sleep(RETRY_MS)

    def _take(self, shard: _Shard, reader: Reader) -> bool:
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
        else:
            if not shard.after:
                shard.whole = set()
                shard.whole_version = version
            version = shard.whole_version  # later changes follow
            shard.whole.update([topic_filter for topic_filter, _ in found])
            if kind != WHOLE:
                shard.after = found[-1][0]
                return False
            changed = capture.replace(shard.number, shard.whole)
            shard.whole = set()
            shard.after = b""
        shard.version = version
        self._table.topics_changed(changed)
        return True

    def _count(self) -> None:
        self._table.capture.lapses_at = min([shard.until for shard in self._shards], default=NEVER)
