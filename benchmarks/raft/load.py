"""Writers in a process of their own: each has a connection to one node and keeps a number of messages in flight there.

```
 writer 1 --> lane to node 1: messages, in turn to all groups that node 1 leads
          <-- "n more of yours are committed": n more are sent
 writer 2 --> lane to node 2 ...
```
Every message is a frame of its own, as a PUBLISH would be. Frames are prepared, so that making load costs next to
nothing: what is measured is the nodes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import cast

from flockmq.errors import FlockError
from flockmq.testing.processes.protocol import FRAME_BYTES_MAX, append_frame, read_counts
from flockmq.wire.frames import FrameReader

PAYLOAD = bytes(range(64))


class Lane(asyncio.Protocol):
    """A writer's connection to its node."""

    def __init__(self, groups: Sequence[int], in_flight: int, start: int) -> None:
        self.committed = 0
        self.lost = 0
        """Messages that were refused or whose outcome is unknown."""
        self.stopping = False
        self.waits_s: list[float] = []
        """With one message in flight: how long each took."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_flight = in_flight
        self._open = 0
        self._sent_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(FRAME_BYTES_MAX)
        frames = [append_frame(group, PAYLOAD) for group in groups]
        self._size = len(frames[0])
        self._cycle = len(groups)
        self._pattern = b"".join(frames) * (in_flight // self._cycle + 2)
        self._next = start % self._cycle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send(self._in_flight)

    def data_received(self, data: bytes) -> None:
        done = 0
        for frame in self._reader.feed(data):
            committed, refused, unknown = read_counts(frame)
            self.committed += committed
            self.lost += refused + unknown
            done += committed + refused + unknown
        self._open -= done
        if self._in_flight == 1:
            self.waits_s.append(time.perf_counter() - self._sent_at)
        if not self.stopping:
            self._send(done)
        elif not self._open and not self.ended.done():
            self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (how it was lost changes nothing)
        if not self.ended.done():
            if self.stopping:
                self.ended.set_result(None)
            else:
                self.ended.set_exception(FlockError("A node closed its connection to a writer."))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _send(self, count: int) -> None:
        assert self._transport is not None
        self._open += count
        start = self._next * self._size
        self._next = (self._next + count) % self._cycle
        if self._in_flight == 1:
            self._sent_at = time.perf_counter()
        self._transport.write(self._pattern[start : start + count * self._size])


class Load:
    """All writers of a measurement."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []

    @classmethod
    async def begin(
        cls, addresses: Mapping[int, tuple[str, int]], leaders: Mapping[int, int], writers: int, in_flight: int
    ) -> Load:
        """Connect ``writers`` with ``in_flight`` messages each to the nodes in turn, and begin."""
        load = cls()
        loop = asyncio.get_running_loop()
        led = {node: [group for group in sorted(leaders) if leaders[group] == node] for node in addresses}
        nodes = [node for node, groups in led.items() if groups]
        for writer in range(writers):
            node = nodes[writer % len(nodes)]
            lane = Lane(led[node], in_flight, writer // len(nodes))
            await loop.create_connection(lambda lane=lane: lane, *addresses[node])  # type: ignore[misc]
            load.lanes.append(lane)
        return load

    @property
    def committed(self) -> int:
        return sum(lane.committed for lane in self.lanes)

    @property
    def lost(self) -> int:
        return sum(lane.lost for lane in self.lanes)

    async def measure(self, seconds: float) -> float:
        """Messages committed a second from now on."""
        before, start = self.committed, time.perf_counter()
        await asyncio.wait([lane.ended for lane in self.lanes], timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        return (self.committed - before) / (time.perf_counter() - start)

    async def end(self) -> None:
        """Send no more, wait for all answers."""
        for lane in self.lanes:
            lane.stopping = True  # each has some in flight, so each will be answered
        await asyncio.gather(*(lane.ended for lane in self.lanes))
        for lane in self.lanes:
            lane.close()
