"""Wills of clients, part of the table of sessions: each with its client, its due time and the run that publishes it.

```
 CLAIM with a will --> kept --DETACH, ORPHAN--> its delay runs ----.
                        |                           |               +--> due --FIRING--> in a run --FIRED--> gone
                        |-- session over; taken over without delay -'
                        `-- DETACH of a client that said goodbye; REVOKE; taken over in time --> gone
```
A will belongs to (client, epoch) and outlives the record of its session. Time is that of the log. FIRING is committed
before the will is published: from then on no claim can void it. Wills that one entry takes for the same target are one
*run*, whose sequence is the index of that entry: the target's log takes a run once, whichever leader sends it.
"""

from __future__ import annotations

import heapq
import struct
from typing import Final

from flockmq.peering.fields import NUMBER_MAX, U32, Reader, large, malformed, sized

WILL_BYTES_MAX: Final = 131_072
"""Encoded: 64 KiB of payload, and as much for topic and properties."""
WILLS_BYTES_MAX: Final = 268_435_456
"""Bytes of all wills of a shard."""
WILLS_MAX: Final = 1_000_000
NO_LOG: Final = 0
"""Target of wills that no log keeps."""
CONNECTED: Final = -1
"""In place of a due time: the client is connected."""
_RETAIN: Final = 4
_WILL: Final = struct.Struct("<BBIQ")
_KEPT: Final = struct.Struct("<QBQQQ")
_HAS_USER: Final = 1
_KEPT_BYTES_LEAST: Final = _KEPT.size + 8
_WILL_COST: Final = 1_000
"""Approximate memory of a will, beside the bytes in it."""
_SLACK: Final = 1_024


class StoredWill:
    """A will as its client gave it; ``properties`` are those that subscribers get, encoded."""

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        version: int,
        delay_s: int,
        expiry_s: int,
        properties: bytes,
    ) -> None:
        self.topic = topic
        """The topic name, with the namespace of the client."""
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.version = version
        self.delay_s = delay_s
        self.expiry_s = expiry_s
        """Seconds from its publication on; -1: for ever."""
        self.properties = properties

    def encode(self) -> bytes:
        """For statements and checkpoints."""
        head = _WILL.pack(self.qos | (_RETAIN if self.retain else 0), self.version, self.delay_s, self.expiry_s + 1)
        return head + sized(self.topic) + sized(self.payload) + large(self.properties)


def read_will(data: bytes) -> StoredWill:
    """Read ``StoredWill.encode``; RemoteProtocolError when it is not that."""
    reader = Reader(data)
    flags, version, delay_s, expiry = _WILL.unpack_from(data, reader.skip(_WILL.size))
    topic = reader.sized()
    payload = reader.sized()
    properties = reader.large(WILL_BYTES_MAX)
    reader.finish()
    if flags & 3 == 3 or flags > 7 or version not in (4, 5) or not topic or expiry > NUMBER_MAX:
        raise malformed("a will that MQTT does not have")
    return StoredWill(topic, payload, flags & 3, flags & _RETAIN != 0, version, delay_s, expiry - 1, properties)


class KeptWill:
    """A will in the table."""

    def __init__(self, client: bytes, epoch: int, user: bytes | None, encoded: bytes) -> None:
        self.client = client
        self.epoch = epoch
        self.user = user
        self.will = read_will(encoded)
        self.encoded = encoded
        self.due_ms = CONNECTED
        """Log time from which the will is due."""
        self.target = NO_LOG
        self.sequence = 0
        """The run that has the will; 0: no run has taken it yet."""

    def cost(self) -> int:
        """About how much memory the will takes."""
        return _WILL_COST + len(self.client) + 2 * len(self.encoded)

    def is_due(self, clock_ms: int) -> bool:
        """Whether the will must be published, whatever its client does."""
        return 0 <= self.due_ms <= clock_ms

    def encode(self) -> bytes:
        """For a checkpoint."""
        flags = 0 if self.user is None else _HAS_USER
        fields = _KEPT.pack(self.epoch, flags, self.due_ms + 1, self.target, self.sequence)
        return sized(self.client) + fields + sized(self.user or b"") + large(self.encoded)


class SessionWills:
    """See the module."""

    def __init__(self) -> None:
        self.kept: dict[tuple[bytes, int], KeptWill] = {}
        """By client and epoch."""
        self.runs: dict[tuple[int, int], list[KeptWill]] = {}
        """(target, sequence) -> wills that are taken and not known to be published."""
        self.bytes = 0
        self.bytes_max = WILLS_BYTES_MAX
        """The bound must be the same on all replicas, or their states would differ."""
        self._heap: list[tuple[int, bytes, int]] = []
        """A heap of (due, client, epoch); some entries are outdated."""

    # Claims, and the end of connections.

    def has_room(self, encoded: bytes) -> bool:
        """Whether another will may be kept."""
        return self.bytes + len(encoded) <= self.bytes_max and len(self.kept) < WILLS_MAX

    def add(self, client: bytes, epoch: int, user: bytes | None, encoded: bytes) -> None:
        """A claim with a will is granted."""
        self._put(KeptWill(client, epoch, user, encoded))

    def taken_over(self, client: bytes, epoch: int, goes_on: bool, clock_ms: int) -> None:
        """Another connection has the session. A delayed will is void, unless the session ends here."""
        known = self._open(client, epoch)
        if known is None or known.is_due(clock_ms):
            return
        if goes_on and known.will.delay_s:
            self._drop(known)
        else:
            self._due_at(known, clock_ms)

    def carry(self, client: bytes, epoch: int, later: int) -> None:
        """The same connection continues under a later epoch. A will that a run has taken does not change."""
        known = self._open(client, epoch)
        if known is not None:
            self._drop(known)
            self.add(client, later, known.user, known.encoded)

    def start(self, client: bytes, epoch: int, expiry_s: int, clock_ms: int) -> None:
        """The connection is gone without a goodbye: the delay runs, but no longer than the session lasts."""
        known = self._open(client, epoch)
        if known is not None and known.due_ms < 0:
            self._due_at(known, clock_ms + min(known.will.delay_s, expiry_s) * 1_000)

    def end(self, client: bytes, epoch: int, clock_ms: int) -> None:
        """The session is over: a will that waits is due now."""
        known = self._open(client, epoch)
        if known is not None and not known.is_due(clock_ms):
            self._due_at(known, clock_ms)

    def void(self, client: bytes, epoch: int) -> None:
        """Drop the will, unless a run has taken it."""
        known = self._open(client, epoch)
        if known is not None:
            self._drop(known)

    def _open(self, client: bytes, epoch: int) -> KeptWill | None:
        """A will that is not taken."""
        known = self.kept.get((client, epoch))
        return known if known is not None and not known.sequence else None

    def _due_at(self, known: KeptWill, due_ms: int) -> None:
        known.due_ms = due_ms
        heapq.heappush(self._heap, (due_ms, known.client, known.epoch))
        if len(self._heap) > 2 * len(self.kept) + _SLACK:
            self._find_due()

    # Publishing.

    def due(self, clock_ms: int, limit: int) -> list[KeptWill]:
        """Due wills that no run has taken, the earliest first."""
        found: dict[tuple[bytes, int], KeptWill] = {}
        while self._heap and self._heap[0][0] <= clock_ms and len(found) < limit:
            due_ms, client, epoch = heapq.heappop(self._heap)
            known = self._open(client, epoch)
            if known is not None and known.due_ms == due_ms:
                found[client, epoch] = known
        for known in found.values():
            heapq.heappush(self._heap, (known.due_ms, known.client, known.epoch))
        return list(found.values())

    def next_due_ms(self) -> int:
        """No will is due before this log time; -1: none waits."""
        return self._heap[0][0] if self._heap else -1

    def take(self, target: int, named: list[tuple[bytes, int]], sequence: int, clock_ms: int) -> None:
        """FIRING: these wills are one run. A run whose target is gone is taken again, for another target."""
        for key in named:
            known = self.kept.get(key)
            if known is None or not known.is_due(clock_ms) or (known.sequence and known.target == target):
                continue
            self._leave_run(known)
            known.target = target
            known.sequence = sequence
            self.runs.setdefault((target, sequence), []).append(known)

    def published(self, target: int, sequence: int) -> None:
        """FIRED: a run is published."""
        for known in list(self.runs.get((target, sequence), ())):
            self._drop(known)

    def _leave_run(self, known: KeptWill) -> None:
        run = self.runs.get((known.target, known.sequence))
        if run is not None:
            run.remove(known)
            if not run:
                del self.runs[known.target, known.sequence]

    def _put(self, known: KeptWill) -> None:
        self.kept[known.client, known.epoch] = known
        self.bytes += known.cost()

    def _drop(self, known: KeptWill) -> None:
        if known.sequence:
            self._leave_run(known)
        del self.kept[known.client, known.epoch]
        self.bytes -= known.cost()

    def _find_due(self) -> None:
        waiting = [known for known in self.kept.values() if known.due_ms >= 0 and not known.sequence]
        self._heap = [(known.due_ms, known.client, known.epoch) for known in waiting]
        heapq.heapify(self._heap)

    # Checkpoints.

    def encode(self) -> bytes:
        """For a checkpoint: the same bytes on every replica."""
        return U32.pack(len(self.kept)) + b"".join([known.encode() for known in self.kept.values()])

    def restore(self, reader: Reader) -> None:
        """Read ``encode``."""
        for _ in range(reader.count(WILLS_MAX, _KEPT_BYTES_LEAST)):
            client = reader.sized()
            epoch, flags, due, target, sequence = _KEPT.unpack_from(reader.data, reader.skip(_KEPT.size))
            user = reader.sized()
            known = KeptWill(client, epoch, user if flags & _HAS_USER else None, reader.large(2 * WILL_BYTES_MAX))
            known.due_ms = due - 1
            known.target = target
            known.sequence = sequence
            self._put(known)
            if sequence:
                self.runs.setdefault((target, sequence), []).append(known)
        self._find_due()
