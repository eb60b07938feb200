"""Which records of a partition are for a group: read from the leader's own log, each batch once for all groups.

```
 position --> batches (a few of them are kept) --> Selection --> pieces: ranges of selected records, with their keys
              a group that takes all records, in ``share`` mode: not a byte is read
```
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flockmq.cluster.groups import KEY, SHARE
from flockmq.cluster.model import BY_CLIENT, BY_PROPERTY
from flockmq.durable.groups.window import FRESH_MAX, Piece
from flockmq.log.batch import BatchView
from flockmq.log.columns import KEY as KEY_COLUMN
from flockmq.log.columns import USER
from flockmq.log.header import columns_of

if TYPE_CHECKING:
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.cluster.model import TopicRecord
    from flockmq.cluster.selection import Selection
    from flockmq.durable.logs.local import LocalLogs

READ_BYTES: Final = 262_144
BATCHES_KEPT: Final = 32
"""Of each partition: groups at the end of a log read the same batches."""


class ScannedBatch:
    """A batch, with what groups ask of it."""

    def __init__(self, data: bytes) -> None:
        view = BatchView(data)
        self.view = view
        self.base = view.base_offset
        self.end = view.next_offset
        self.topics = view.topics()
        mask = columns_of(data)
        self.has_user = mask & USER != 0
        self.has_keys = mask & KEY_COLUMN != 0
        self._indexes: tuple[int, ...] = ()
        self._clients: tuple[int, ...] = ()

    def indexes(self) -> tuple[int, ...]:
        """The number of each record's topic name."""
        if not self._indexes:
            columns = self.view.columns()
            self._indexes = struct.unpack_from(f"<{self.view.count}i", columns.data, columns.spans["topic"][0])
        return self._indexes

    def client_indexes(self) -> tuple[int, ...]:
        """The number of each record's client id."""
        if not self._clients:
            columns = self.view.columns()
            self._clients = struct.unpack_from(f"<{self.view.count}i", columns.data, columns.spans["client"][0])
        return self._clients

    def verdicts(self, selection: Selection) -> list[bool] | None:
        """Which records are selected; None: all."""
        if selection.takes_all:
            return None
        if self.has_user and selection.by_properties:
            topics = self.topics
            return [selection.record(topics[one], self.user(at)) for at, one in enumerate(self.indexes())]
        by_name = [selection.plain(topic) for topic in self.topics]
        if False not in by_name:
            return None
        if True not in by_name:
            return [False] * self.view.count
        return [by_name[one] for one in self.indexes()]

    def user(self, at: int) -> list[tuple[bytes, bytes]]:
        """The user properties of a record."""
        return self.view.record(at).user

    def keys(self, topic: TopicRecord) -> list[bytes]:
        """The partition key of each record."""
        if topic.key == BY_CLIENT:
            clients = self.view.clients()
            keys = [clients[one] for one in self.client_indexes()]
        else:
            keys = [self.topics[one] for one in self.indexes()]
        if self.has_keys and topic.key == BY_PROPERTY:
            for at in range(self.view.count):
                own = self.view.record(at).key
                if own is not None:
                    keys[at] = own
        return keys


class Scanner:
    """See the module."""

    def __init__(self, local: LocalLogs) -> None:
        self._local = local
        self._batches: dict[int, dict[int, ScannedBatch]] = {}
        """Partition -> base offset -> batch, the one asked for last at the end."""

    def closed(self, partition: int) -> None:
        """The partition is led elsewhere."""
        self._batches.pop(partition, None)

    def scan(
        self, partition: int, position: int, end: int, group: ConsumerGroup, topic: TopicRecord, selection: Selection
    ) -> tuple[int, list[Piece]]:
        """Look at some of the log from ``position`` on: how far, and what is selected there."""
        if selection.takes_all and group.mode != KEY:
            stop = min(end, position + FRESH_MAX)
            return stop, [Piece(position, stop, b"")]
        pieces: list[Piece] = []
        for batch in self._read(partition, position):
            self._pieces(batch, position, min(end, batch.end), group, topic, selection, pieces)
            position = max(position, min(end, batch.end))
            if position >= end:
                break
        return position, pieces

    def _pieces(
        self,
        batch: ScannedBatch,
        low: int,
        high: int,
        group: ConsumerGroup,
        topic: TopicRecord,
        selection: Selection,
        found: list[Piece],
    ) -> None:
        verdicts = batch.verdicts(selection)
        low = max(low, batch.base)
        if group.mode != KEY:
            if verdicts is None:
                found.append(Piece(low, high, b""))
                return
            base = batch.base
            found += [Piece(one, one + 1, b"") for one in range(low, high) if verdicts[one - base]]
            return
        keys = batch.keys(topic)
        start = low
        for offset in range(low, high + 1):
            at = offset - batch.base
            is_same = offset < high and keys[at] == keys[start - batch.base] if start < high else False
            if is_same and (verdicts is None or verdicts[at] == verdicts[start - batch.base]):
                continue
            if offset > start and (verdicts is None or verdicts[start - batch.base]):
                found.append(Piece(start, offset, keys[start - batch.base]))
            start = offset

    def names(self, partition: int, low: int, high: int) -> list[tuple[int, int, bytes]]:
        """The topic names of a range of records, as ranges."""
        found: list[tuple[int, int, bytes]] = []
        while low < high:
            batches = self._read(partition, low)
            for batch in batches:
                indexes = batch.indexes()
                for offset in range(max(low, batch.base), min(high, batch.end)):
                    name = batch.topics[indexes[offset - batch.base]]
                    if found and found[-1][2] == name and found[-1][1] == offset:
                        found[-1] = (found[-1][0], offset + 1, name)
                    else:
                        found.append((offset, offset + 1, name))
                low = max(low, batch.end)
                if low >= high:
                    break
            if not batches:
                break
        return found

    def keys(self, partition: int, low: int, high: int, group: ConsumerGroup, topic: TopicRecord) -> list[Piece]:
        """A range of records by their keys; one without a key where the log does not have them."""
        if group.mode == SHARE:
            return [Piece(low, high, b"")]
        if group.mode != KEY:
            return [Piece(low, high, b"")]
        found: list[Piece] = []
        while low < high:
            batches = self._read(partition, low)
            if not batches:
                found.append(Piece(low, high, b""))
                break
            for batch in batches:
                keys = batch.keys(topic)
                stop = min(high, batch.end)
                found += [Piece(one, one + 1, keys[one - batch.base]) for one in range(max(low, batch.base), stop)]
                low = max(low, batch.end)
                if low >= high:
                    break
        return found

    def _read(self, partition: int, position: int) -> list[ScannedBatch]:
        """Batches from the one that holds the offset on; OffsetGone when it is no more."""
        kept = self._batches.setdefault(partition, {})
        found: list[ScannedBatch] = []
        for base in sorted(kept):
            batch = kept[base]
            if batch.base <= position < batch.end:
                found.append(batch)
                position = batch.end
        if found:
            return found
        for data in self._local.read(partition, position, READ_BYTES):
            batch = ScannedBatch(data)
            if batch.view.count:
                found.append(batch)
                kept.pop(batch.base, None)
                kept[batch.base] = batch
        while len(kept) > BATCHES_KEPT:
            del kept[next(iter(kept))]
        return found
