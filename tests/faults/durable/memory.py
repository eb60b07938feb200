"""What publishers and subscribers did and were told: the promises that everything is held against afterwards.

A message is known by its text, ``PUBLISHER KEY NUMBER``: numbers count up for every publisher and key, and a message
that is sent again (DUP) is the same message.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import pairwise

from flockmq.routing.durable import shard_of

SIZE = 64


class Memory:
    """See the module. Times are those of ``time.monotonic``."""

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self.sent: dict[bytes, int] = {}
        """Payload -> shard that it belongs to."""
        self.attempts: dict[bytes, int] = {}
        """Payload -> how often it was sent, where that is more than once."""
        self.acknowledged: dict[bytes, float] = {}
        """Payload -> when its PUBACK came."""
        self.refused: dict[bytes, int] = {}
        """Payload -> reason code: in no log, and never will be, however often they were sent."""
        self.seen: list[dict[int, list[bytes]]] = []
        """For every connection of every subscriber: shard -> payloads as they came."""
        self.kills: list[tuple[float, float]] = []
        """When leaders died, and when all shards had gone on."""
        self._acks: list[list[float]] = [[] for _ in range(shards)]
        self._changed = asyncio.Event()

    def shard_of(self, topic: bytes) -> int:
        """The shard of a topic name, which is the key."""
        return shard_of(topic, self.shards)

    def told(self, payload: bytes, reason: int) -> None:
        """A PUBACK came."""
        now = time.monotonic()
        if reason < 0x80:
            if payload not in self.acknowledged:
                self.acknowledged[payload] = now
                self._acks[self.sent[payload]].append(now)
        else:
            self.refused[payload] = reason
        self._changed.set()

    async def more(self, count: int, seconds_max: float) -> bool:
        """Wait for so many more PUBACKs, or that long: without a majority none come."""
        wanted = len(self.acknowledged) + count
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while len(self.acknowledged) < wanted:
                    self._changed.clear()
                    await self._changed.wait()
        return len(self.acknowledged) >= wanted

    async def more_of_all(self, seconds_max: float) -> bool:
        """Wait until every shard has acknowledged something that was told after now."""
        marks = [len(acks) for acks in self._acks]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while any(len(acks) <= mark + 1 for acks, mark in zip(self._acks, marks, strict=True)):
                    self._changed.clear()
                    await self._changed.wait()
                return True
        return False

    def gap_s(self, begin: float, end: float) -> tuple[float, int]:
        """Longest time without a PUBACK of a shard between two moments, and which shard it was."""
        worst = (0.0, -1)
        for shard, acks in enumerate(self._acks):
            moments = [begin, *(ack for ack in acks if begin <= ack <= end), end]
            worst = max(worst, *((after - before, shard) for before, after in pairwise(moments)))
        return worst


def payload_of(publisher: str, key: int, number: int) -> bytes:
    """The text of a message, padded."""
    return f"{publisher} k{key} {number} ".encode().ljust(SIZE, b".")
