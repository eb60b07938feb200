"""Writers that never stop, whatever happens to the nodes, and that remember all they did and were told.

```
 Writer: connect to a node --> records to all groups, WINDOW at a time --> outcomes
             ^                                                              |
             `------- the connection broke: what was under way is unknown <-'
```
Every record is sent once and never again, so that one that is in a log twice was doubled by the nodes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from flockmq.raft.senders import COMMITTED, REFUSED
from flockmq.testing.processes.cluster import ProcessCluster
from flockmq.testing.processes.protocol import read_frame, read_outcome, record_frame
from flockmq.wire.frames import LENGTH_BYTES

WINDOW = 16
"""Records a writer has under way."""
READ_EVERY = 17
"""Every so many requests one that reads."""
PADDING = b"." * 40


class Memory:
    """What all writers did and were told. Records are known by their payload, which is different for each."""

    def __init__(self) -> None:
        self.sent: dict[bytes, int] = {}
        """Payload -> group."""
        self.committed: dict[bytes, int] = {}
        """Payload -> offset."""
        self.refused: set[bytes] = set()
        self.ends: dict[int, int] = {}
        """Group -> offset behind all that was acknowledged or read: a read that begins now must not see less."""
        self.outcomes = 0
        self.reads = 0
        self._changed = asyncio.Event()

    def told(self, payload: bytes, what: int, offset: int) -> None:
        self.outcomes += 1
        if what == COMMITTED:
            self.committed[payload] = offset
            self._reaches(self.sent[payload], offset + 1)
        elif what == REFUSED:
            self.refused.add(payload)
        self._changed.set()

    def saw(self, group: int, floor: int, end: int) -> None:
        """A read was answered."""
        assert end >= floor, f"group {group}: a read saw up to {end}, when it began {floor} was known"
        self._reaches(group, end)
        self.reads += 1

    def _reaches(self, group: int, end: int) -> None:
        self.ends[group] = max(self.ends.get(group, 0), end)

    async def more(self, count: int, seconds_max: float) -> bool:
        """Wait for so many more outcomes, or that long: without a majority none come."""
        wanted = self.outcomes + count
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while self.outcomes < wanted:
                    self._changed.clear()
                    await self._changed.wait()
        return self.outcomes >= wanted


class Writer:
    """One client after the other, each with a connection of its own."""

    def __init__(self, name: str, cluster: ProcessCluster, memory: Memory, rng: random.Random) -> None:
        self._name = name
        self._cluster = cluster
        self._memory = memory
        self._rng = rng
        self._connections = 0

    async def run(self) -> None:
        while True:
            node = self._rng.choice(self._cluster.nodes)
            try:
                reader, writer = await asyncio.open_connection(*self._cluster.address(node))
            except OSError:
                await asyncio.sleep(0.02)  # nobody there: the next one may be
                continue
            self._connections += 1
            try:
                await self._write(reader, writer)
            except (OSError, EOFError):
                pass
            finally:
                writer.close()

    async def _write(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        memory = self._memory
        sender = f"{self._name}.{self._connections}"
        records: dict[int, bytes] = {}
        reads: dict[int, tuple[int, int]] = {}
        number = 0
        while True:
            while len(records) + len(reads) < WINDOW:
                number += 1
                group = self._rng.randrange(self._cluster.groups)
                if number % READ_EVERY == 0:
                    reads[number] = (group, memory.ends.get(group, 0))
                    writer.write(read_frame(group, number))
                else:
                    payload = f"{sender} {number} ".encode() + PADDING
                    records[number] = payload
                    memory.sent[payload] = group
                    writer.write(record_frame(group, number, payload))
            length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "little")
            answered, what, offset = read_outcome(await reader.readexactly(length))
            if answered in records:
                memory.told(records.pop(answered), what, offset)
            else:
                group, floor = reads.pop(answered)
                if what == COMMITTED:
                    memory.saw(group, floor, offset)


@asynccontextmanager
async def writing(cluster: ProcessCluster, seed: int, writers: int = 6) -> AsyncIterator[Memory]:
    """Load, while the context lasts."""
    memory = Memory()
    tasks = [
        asyncio.create_task(Writer(f"w{number}", cluster, memory, random.Random(f"{seed} {number}")).run())
        for number in range(writers)
    ]
    try:
        yield memory
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
