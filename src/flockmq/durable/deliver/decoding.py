"""Batches become runs again: what a publisher sent in one go is delivered in one go.

```
 batch --> BatchDecoder: topic names, once each --> wanted? else not a byte of theirs is looked at
              `--> pieces(low, high): consecutive records of one topic, flags and properties --> one Run each
```
Where a batch holds one topic and no rare columns, as most do under load, nothing here costs per record but cutting out
its payload. Messages that have expired are left out: the log keeps them, MQTT does not deliver them.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.log.batch import BatchError, BatchView
from flockmq.log.columns import QOS_MASK, RETAIN, Columns
from flockmq.mqtt.properties import IN_PUBLISH, Properties, decode_properties, encode_block
from flockmq.mqtt.run import Run, payloads_run

UNWANTED: Final = 0
"""Instead of a version of MQTT: no client here wants this topic."""
NO_TOPIC: Final = "A record of this batch names a topic that the batch does not have."
PLAIN: Final = -1
"""Instead of the number of a record's extras: it has none."""


class Piece:
    """Consecutive records as a run; ``offset`` is that of the first one."""

    def __init__(self, run: Run, offset: int, topic_index: int, client: bytes) -> None:
        self.run = run
        self.offset = offset
        self.topic_index = topic_index
        self.client = client
        """The client id of the publisher; of several publishers the first, unless they were to be told apart."""

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.offset + self.run.count


class _Extras:
    """Expiry and properties of a record that has some; neighbours with the same share one of these."""

    def __init__(self, expires_at: int, properties: bytes) -> None:
        self.expires_at = expires_at
        self.properties = properties


class BatchDecoder:
    """One data batch. BatchError where it is no such."""

    def __init__(self, batch: bytes) -> None:
        view = BatchView(batch)
        self.view = view
        self.topics = view.topics()
        self.base = view.base_offset
        self.end = view.next_offset
        self._columns: Columns | None = None
        self._topic: tuple[int, ...] = ()
        self._client: tuple[int, ...] = ()
        self._payload_ends: tuple[int, ...] = ()
        self._payload_at = 0
        self._flags = b""
        self._clients: list[bytes] = []
        self._extra: list[int] = []
        self._extras: list[_Extras] = []

    def has_retained(self) -> bool:
        """Whether any record asks to be retained; nothing else is looked at."""
        columns = self.view.columns()
        at = columns.spans["flags"][0]
        return max(columns.data[at : at + self.view.count]) >= RETAIN

    def retained(self, wall_offset_ms: int) -> list[Piece]:
        """The last record of each topic that asks to be retained, each alone, in order of offsets."""
        self._load()
        last: dict[int, int] = {}
        for position in range(self.view.count):
            if self._flags[position] & RETAIN:
                last[self._topic[position]] = position
        return [self._piece(position, position + 1, 5, wall_offset_ms) for position in sorted(last.values())]

    def pieces(
        self, low: int, high: int, versions: list[int], wall_offset_ms: int, now: int, by_client: bool = False
    ) -> list[Piece]:
        """Runs of the records from offset ``low`` to ``high``; per topic the version of MQTT to make them in.

        Records of a topic with ``UNWANTED`` are left out, those of MQTT 4 with properties become MQTT 5. ``by_client``:
        messages of different publishers are never in one run.
        """
        start = max(low, self.base) - self.base
        stop = min(high, self.end) - self.base
        if start >= stop or not any(versions):
            return []
        self._load()
        found: list[Piece] = []
        flags = self._flags
        topic = self._topic
        client = self._client
        extra = self._extra
        uniform = len(self.topics) == 1 and not extra and flags.count(flags[start], start, stop) == stop - start
        if uniform and (not by_client or len(self._clients) == 1):
            return [self._piece(start, stop, versions[0], wall_offset_ms)]
        at = start
        while at < stop:
            index = topic[at]
            flag = flags[at]
            after = at + 1
            while after < stop and topic[after] == index and flags[after] == flag:
                if (by_client and client[after] != client[at]) or (extra and extra[after] != extra[at]):
                    break
                after += 1
            if index >= len(versions) or index < 0:
                raise BatchError(NO_TOPIC)
            if versions[index] and not self._is_expired(at, wall_offset_ms, now):
                found.append(self._piece(at, after, versions[index], wall_offset_ms))
            at = after
        return found

    def cuts(self, by_client: bool, records_max: int) -> list[int]:
        """Where runs end, by position: records of one are alike but for their payloads, and no more than these."""
        self._load()
        count = self.view.count
        flags = self._flags
        topic = self._topic
        client = self._client
        extra = self._extra
        found: list[int] = []
        uniform = len(self.topics) == 1 and not extra and flags.count(flags[0]) == count
        if uniform and (not by_client or len(self._clients) == 1):
            found = list(range(records_max, count, records_max))
            found.append(count)
            return found
        start = 0
        for at in range(1, count):
            is_other = topic[at] != topic[at - 1] or flags[at] != flags[at - 1]
            is_other = is_other or (by_client and client[at] != client[at - 1])
            if is_other or (len(extra) > 0 and extra[at] != extra[at - 1]) or at - start == records_max:
                found.append(at)
                start = at
        found.append(count)
        return found

    def topic_at(self, position: int) -> int:
        """The number of a record's topic name, after ``cuts``."""
        index = self._topic[position]
        if index >= len(self.topics) or index < 0:
            raise BatchError(NO_TOPIC)
        return index

    def piece(self, start: int, stop: int, version: int, wall_offset_ms: int) -> Piece:
        """The run of records that ``cuts`` left together, also when they have expired."""
        self._load()
        return self._piece(start, stop, version, wall_offset_ms)

    def _is_expired(self, position: int, wall_offset_ms: int, now: int) -> bool:
        if not self._extra or self._extra[position] == PLAIN:
            return False
        expires_at = self._extras[self._extra[position]].expires_at
        return 0 < expires_at <= now + wall_offset_ms

    def _piece(self, start: int, stop: int, version: int, wall_offset_ms: int) -> Piece:
        columns = self._columns
        assert columns is not None
        data = columns.data
        ends = self._payload_ends
        at = self._payload_at
        payloads = [data[at + ends[i] : at + ends[i + 1]] for i in range(start, stop)]
        properties = b""
        expires_at = 0
        if self._extra and self._extra[start] != PLAIN:
            extras = self._extras[self._extra[start]]
            properties = extras.properties
            if properties:
                version = 5
            if extras.expires_at:
                expires_at = max(extras.expires_at - wall_offset_ms, 1)
        flags = self._flags[start]
        index = self._topic[start]
        run = payloads_run(
            version, flags & QOS_MASK, flags & RETAIN != 0, self.topics[index], payloads, properties, expires_at
        )
        return Piece(run, self.base + start, index, self._clients[self._client[start]])

    def _load(self) -> None:
        if self._columns is not None:
            return
        view = self.view
        columns = view.columns()
        data = columns.data
        spans = columns.spans
        count = view.count
        self._topic = struct.unpack_from(f"<{count}i", data, spans["topic"][0])
        self._client = struct.unpack_from(f"<{count}i", data, spans["client"][0])
        self._payload_ends = struct.unpack_from(f"<{count + 1}i", data, spans["payload.offsets"][0])
        self._payload_at = spans["payload.bytes"][0]
        flags_at = spans["flags"][0]
        self._flags = data[flags_at : flags_at + count]
        self._clients = view.clients()
        if "expires_at" in spans or "properties.offsets" in spans or "user.offsets" in spans:
            self._load_extras(columns, count)
        self._columns = columns

    def _load_extras(self, columns: Columns, count: int) -> None:
        """Number what records have beside their payload; a record like the one before it gets the same number."""
        data = columns.data
        spans = columns.spans
        expires: tuple[int, ...] = ()
        if "expires_at" in spans:
            expires = struct.unpack_from(f"<{count}q", data, spans["expires_at"][0])
        blocks = _Binary(columns, "properties", count)
        pairs: tuple[int, ...] = ()
        if "user.offsets" in spans:
            pairs = struct.unpack_from(f"<{count + 1}i", data, spans["user.offsets"][0])
        names = _Binary(columns, "user.key", pairs[count] if pairs else 0)
        values = _Binary(columns, "user.value", pairs[count] if pairs else 0)
        numbers = [PLAIN] * count
        for position in range(count):
            expires_at = expires[position] if expires else 0
            block = blocks.item(position)
            if pairs and pairs[position] < pairs[position + 1]:
                user = [(names.item(i), values.item(i)) for i in range(pairs[position], pairs[position + 1])]
                block = with_user(block, user)
            if not expires_at and not block:
                continue
            if self._extras and position and numbers[position - 1] == len(self._extras) - 1:
                before = self._extras[-1]
                if before.expires_at == expires_at and before.properties == block:
                    numbers[position] = len(self._extras) - 1
                    continue
            numbers[position] = len(self._extras)
            self._extras.append(_Extras(expires_at, block))
        if self._extras:
            self._extra = numbers


class _Binary:
    """A binary column that may not be there; its items are empty then."""

    def __init__(self, columns: Columns, name: str, count: int) -> None:
        self._data = columns.data
        self._ends: tuple[int, ...] = ()
        self._at = 0
        if name + ".offsets" in columns.spans:
            self._ends = struct.unpack_from(f"<{count + 1}i", self._data, columns.spans[name + ".offsets"][0])
            self._at = columns.spans[name + ".bytes"][0]

    def item(self, position: int) -> bytes:
        """One item."""
        if not self._ends:
            return b""
        return self._data[self._at + self._ends[position] : self._at + self._ends[position + 1]]


def with_user(block: bytes, user: list[tuple[bytes, bytes]]) -> bytes:
    """A property block that has these user properties, too, unless it has user properties already."""
    if block and decode_properties(block, 0, len(block), IN_PUBLISH).user:
        return block
    more = Properties()
    more.user = [(name.decode("utf-8", "replace"), value.decode("utf-8", "replace")) for name, value in user]
    return block + encode_block(more)
