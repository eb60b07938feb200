"""What members' nodes and leaders of partitions say to each other about consumer groups.

```
 PULL    node -> leader   stream, number, seen | demands (member, room) | reported holdings, when the stream is new
         <- GRANTS term, grants that are not seen yet           at once, or when there are some
         <- ANEW                                                the leader does not know the stream: begin another one
 SETTLE  node -> leader   settlements: ack, nack, ...           <- a code for each, when they are committed
 HELD    new leader -> every node   partition, term             <- holdings
```
A grant has a number within its stream; the leader repeats grants until a question has ``seen`` them. So a lost answer
loses no grant, and a grant that came twice counts once.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from flockmq.peering.fields import U32, U64, Reader, sized

GRANTS: Final = 0
ANEW: Final = 1

ACK: Final = 0
NACK: Final = 1
EXPIRED: Final = 2
"""The member had its time."""
BACK: Final = 3
"""The member never got the records."""
BURY: Final = 4
EXTEND: Final = 5
LOST: Final = 6
"""The member is gone, and may have the records."""
BY_BACKOFF: Final = (1 << 32) - 1
"""Instead of a delay: as the group says."""

DONE: Final = 0
STALE: Final = 1
LETTER: Final = 2
OTHER_GENERATION: Final = 3
NO_GROUP: Final = 4
EXTENDED: Final = 5
"""EXPIRED came, but another node had the time extended."""
LATER: Final = 6
"""Codes of settlements; the first three are those of windows."""

DEMANDS_MAX: Final = 20_000
GRANTS_MAX: Final = 4_096
"""In one answer; the rest follows with the next question."""
HOLDINGS_MAX: Final = 100_000
SETTLEMENTS_MAX: Final = 16_384
TEXT_BYTES_MAX: Final = 1_024
_PULL: Final = struct.Struct("<QQQQQIB")
_DEMAND: Final = struct.Struct("<QIII")
_GRANT: Final = struct.Struct("<QQIIQQQ")
_HOLDING: Final = struct.Struct("<QIIQQQ")
_SETTLEMENT: Final = struct.Struct("<BQIQQQII")


class Demand(NamedTuple):
    """How many more records a member takes from a partition, counted behind the grants that were seen."""

    group: int
    generation: int
    handle: int
    room: int
    name: bytes
    filter: bytes
    """Of topic names, in internal form; empty: all that the group selects."""
    is_gone: bool = False
    """The member takes no more; ``room`` is 0."""


class Grant(NamedTuple):
    """Records for a member."""

    number: int
    group: int
    generation: int
    handle: int
    attempt: int
    low: int
    high: int


class Reported(NamedTuple):
    """Records that a member has, as its node says."""

    group: int
    generation: int
    handle: int
    attempt: int
    low: int
    high: int
    name: bytes


class Settlement(NamedTuple):
    """What became of records of one delivery."""

    what: int
    group: int
    generation: int
    attempt: int
    low: int
    high: int
    delay_ms: int = BY_BACKOFF
    """NACK: until the next delivery. EXTEND: how long."""
    handle: int = 0
    reason: bytes = b""


class Pull(NamedTuple):
    """A question for grants."""

    node_id: int
    boot: int
    stream: int
    number: int
    seen: int
    wait_ms: int
    is_whole: bool
    """The stream is new: these are all demands and all holdings."""
    demands: list[Demand]
    holdings: list[Reported]

    def encode(self) -> bytes:
        """For the leader."""
        head = _PULL.pack(
            self.node_id, self.boot, self.stream, self.number, self.seen, self.wait_ms, int(self.is_whole)
        )
        parts = [head, U32.pack(len(self.demands))]
        for one in self.demands:
            room = 0xFFFFFFFF if one.is_gone else one.room
            parts.append(_DEMAND.pack(one.group, one.generation, one.handle, room))
            parts.append(sized(one.name) + sized(one.filter))
        return b"".join(parts) + encode_holdings(self.holdings)


def read_pull(reader: Reader) -> Pull:
    """Read ``Pull.encode``."""
    node_id, boot, stream, number, seen, wait_ms, whole = _PULL.unpack_from(reader.data, reader.skip(_PULL.size))
    demands: list[Demand] = []
    for _ in range(reader.count(DEMANDS_MAX, _DEMAND.size + 4)):
        group, generation, handle, room = _DEMAND.unpack_from(reader.data, reader.skip(_DEMAND.size))
        name = reader.sized()
        is_gone = room == 0xFFFFFFFF
        demands.append(Demand(group, generation, handle, 0 if is_gone else room, name, reader.sized(), is_gone))
    holdings = read_holdings(reader)
    return Pull(node_id, boot, stream, number, seen, wait_ms, whole != 0, demands, holdings)


def encode_holdings(holdings: list[Reported]) -> bytes:
    """Holdings, at the end of something."""
    parts = [U32.pack(len(holdings))]
    for one in holdings:
        parts.append(_HOLDING.pack(one.group, one.generation, one.handle, one.attempt, one.low, one.high))
        parts.append(sized(one.name))
    return b"".join(parts)


def read_holdings(reader: Reader) -> list[Reported]:
    """Read ``encode_holdings``."""
    found: list[Reported] = []
    for _ in range(reader.count(HOLDINGS_MAX, _HOLDING.size + 2)):
        group, generation, handle, attempt, low, high = _HOLDING.unpack_from(reader.data, reader.skip(_HOLDING.size))
        found.append(Reported(group, generation, handle, attempt, low, high, reader.sized()))
    return found


def encode_grants(term: int, grants: list[Grant]) -> bytes:
    """An answer to PULL."""
    some = grants[:GRANTS_MAX]
    return bytes((GRANTS,)) + U64.pack(term) + U32.pack(len(some)) + b"".join([_GRANT.pack(*one) for one in some])


class Grants(NamedTuple):
    """An answer to PULL; ``term`` 0: begin another stream."""

    term: int
    grants: list[Grant]


def read_grants(body: bytes) -> Grants:
    """Read ``encode_grants``."""
    reader = Reader(body)
    if reader.u8() == ANEW:
        return Grants(0, [])
    term = reader.u64()
    count = reader.count(GRANTS_MAX, _GRANT.size)
    at = reader.skip(count * _GRANT.size)
    data = body[at : at + count * _GRANT.size]
    return Grants(term, [Grant._make(one) for one in _GRANT.iter_unpack(data)])


def encode_settlements(node_id: int, boot: int, settlements: list[Settlement]) -> bytes:
    """A SETTLE question."""
    parts = [U64.pack(node_id), U64.pack(boot), U32.pack(len(settlements))]
    for one in settlements:
        fields = (one.what, one.group, one.generation, one.attempt, one.low, one.high, one.delay_ms, one.handle)
        parts.append(_SETTLEMENT.pack(*fields))
        parts.append(sized(one.reason[:TEXT_BYTES_MAX]))
    return b"".join(parts)


def read_settlements(reader: Reader) -> list[Settlement]:
    """Read what follows node and boot."""
    found: list[Settlement] = []
    for _ in range(reader.count(SETTLEMENTS_MAX, _SETTLEMENT.size + 2)):
        what, group, generation, attempt, low, high, delay_ms, handle = _SETTLEMENT.unpack_from(
            reader.data, reader.skip(_SETTLEMENT.size)
        )
        found.append(Settlement(what, group, generation, attempt, low, high, delay_ms, handle, reader.sized()))
    return found
