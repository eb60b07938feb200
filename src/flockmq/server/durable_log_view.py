"""The logs of partitions for the admin API: from the replica here, else from nodes that have one.

```
 read   a replica here --> files in a thread, off the loop that serves MQTT
             | nothing more here --> wait, if asked to; then its leader is asked whether there is really no more
             ` none, or behind ----> fetched from another node, in smaller pieces
                                     no replica has it: is it beyond the end, which a quorum confirms? then say so
 heads  leaders are asked; whoever waits is woken by the replica here, or looks again now and then
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from flockmq import errors
from flockmq.admin.durable_port import FETCH_BYTES_MAX, Chunk
from flockmq.drivers.clock import now_ms
from flockmq.durable.logs.reading import Again, Behind, Damaged, Gone, NotHere
from flockmq.durable.logs.scanning import filter_batches, scan_extents
from flockmq.log.batch import BatchError
from flockmq.server.durable_asking import Asking, unless_done

if TYPE_CHECKING:
    from flockmq.durable.logs.fetching import Fetched
    from flockmq.durable.logs.reading import Extents
    from flockmq.durable.logs.wanted import WantedNames
    from flockmq.durable.node import DurableNode
    from flockmq.log.staging import Staging
    from flockmq.server.cluster import ClusterService

READERS: Final = 2
"""Threads that read files. Disks are not faster by more of them, and reading must not take all cores."""
READ_TRIES: Final = 5
POLL_MS: Final = 500
"""How often ends of partitions without a replica here are looked at, for somebody who waits."""
SCAN_BYTES_MAX: Final = 32 * 1_048_576
"""Most bytes of batches that are looked at for one answer to somebody who wants only some of them."""
LITTLE_BYTES_MAX: Final = 65_536
"""What is in memory and not more than this is read at once: a thread would take longer to begin."""
LOOK_S: Final = 0.05
LOOKS_MAX: Final = 40
"""How long a reader waits until it is known what is damaged."""
FETCH_WAIT_MS: Final = 2_000
AGAIN_MS: Final = 20
"""The pause after a fetch that brought nothing: it waited at the other end, unless too many do."""


class LogView(Asking):
    """See the module; the part of ``DurablePort`` that is about logs."""

    def __init__(self, service: ClusterService) -> None:
        super().__init__(service)
        self._threads = ThreadPoolExecutor(READERS, "log-reader")

    async def read(
        self, group: int, offset: int, bytes_max: int, wait_ms: int, wanted: WantedNames | None = None
    ) -> Chunk:
        """See ``DurablePort``. Before a follower, who may not know all commits, says "nothing", its leader is asked."""
        node = self._working()
        due_at = now_ms() + wait_ms
        while True:
            left = max(due_at - now_ms(), 0)
            is_here = True
            try:
                chunk = await self._read_here(node, group, offset, bytes_max, wanted)
            except (NotHere, Behind) as error:
                is_here = False
                if isinstance(error, Behind):
                    await self._check_end(node, group, offset)
                chunk = await self._fetch(node, group, offset, bytes_max, min(left, FETCH_WAIT_MS), wanted)
            except Gone as error:
                raise errors.OffsetGone(error.first, f"Offset {offset} of partition group {group}") from None
            if chunk.following > offset:
                return chunk
            if not left:
                return await self._confirm_end(node, group, offset, bytes_max, chunk, wanted)
            await self._grown(node, {group: offset} if is_here else {}, left if is_here else min(left, AGAIN_MS))

    async def _confirm_end(
        self, node: DurableNode, group: int, offset: int, bytes_max: int, chunk: Chunk, wanted: WantedNames | None
    ) -> Chunk:
        """Nothing is here from this offset on: is there nothing at all?"""
        self._working(node)
        if node.engine.speaks_for(group, now_ms()) and node.reader.committed_end(group) <= offset:
            return chunk
        [(_, end)] = await self._heads(node, [group])
        if end <= offset:
            return chunk
        return await self._fetch(node, group, offset, bytes_max, FETCH_WAIT_MS, wanted, end)

    async def _check_end(self, node: DurableNode, group: int, offset: int) -> None:
        """Somebody who asks for more than there is shall not be told to wait. Without a leader nobody can say."""
        ends = self._working(node).ends

        def ask(done: Callable[[int], None]) -> None:
            ends.ask(group, done, now_ms())

        end = await self._reply(ask)
        if 0 <= end < offset:
            raise errors.BeyondEnd(end, f"Offset {offset}", f"partition group {group}")

    async def _read_here(
        self, node: DurableNode, group: int, offset: int, bytes_max: int, wanted: WantedNames | None
    ) -> Chunk:
        self._working(node)
        scan_bytes_max = SCAN_BYTES_MAX if wanted is not None else 0
        for _ in range(READ_TRIES):
            extents = node.reader.extents(group, offset, bytes_max, scan_bytes_max=scan_bytes_max)
            first, end = node.reader.first_of(group), node.reader.end_of(group)
            staging = node.engine.store.staging
            try:
                if _is_little(extents):
                    found = scan_extents(staging, extents, wanted)
                    return Chunk(found.data(), first, end, found.next_offset)
                loop = asyncio.get_running_loop()
                data, following, suspect = await loop.run_in_executor(self._threads, _scan, staging, extents, wanted)
            except Again:
                continue
            if suspect:
                node.scrubbing.suspect(group, suspect)
                if following == offset:
                    await self._looked_at(node, group)
                    raise Damaged(group, offset, offset + 1)
            return Chunk(data, first, end, following)
        node.scrubbing.suspect(group, extents.first_index())  # a file is gone that no checkpoint removed
        await self._looked_at(node, group)
        raise Damaged(group, offset, offset + 1)

    async def _looked_at(self, node: DurableNode, group: int) -> None:
        """Until it is known what is damaged, or that takes too long."""
        for _ in range(LOOKS_MAX):
            await asyncio.sleep(LOOK_S)
            if not self._working(node).scrubbing.is_looking_at(group):
                return

    async def _fetch(
        self,
        node: DurableNode,
        group: int,
        offset: int,
        bytes_max: int,
        wait_ms: int,
        wanted: WantedNames | None,
        until: int = 0,
    ) -> Chunk:
        size = min(bytes_max, FETCH_BYTES_MAX)
        fetching = self._working(node).fetching

        def ask(done: Callable[[Fetched], None]) -> None:
            fetching.fetch(group, offset, size, done, now_ms(), until, wait_ms)

        found = await self._reply(ask)
        if isinstance(found.error, Gone):
            raise errors.OffsetGone(found.first, f"Offset {offset} of partition group {group}")
        if isinstance(found.error, Damaged):
            raise errors.Damaged(found.error.first, found.error.end, f"partition group {group}")
        if isinstance(found.error, Behind):
            await self._check_end(node, group, offset)
            raise errors.Behind(found.error.end, max(offset, until), f"partition group {group}")
        if found.error is not None:
            raise errors.NoAnswer(str(found.error))
        try:
            batches, following = filter_batches(found.batches, offset, wanted)
        except BatchError as error:
            raise errors.NoAnswer(f"What another node sent of group {group} can't be read: {error}") from error
        return Chunk(b"".join(batches), found.first, found.end, following)

    async def _grown(self, node: DurableNode, positions: dict[int, int], wait_ms: int) -> None:
        """Until one of these logs, which have replicas here, goes on; or the time is over."""
        reader = self._working(node).reader
        grown: asyncio.Future[list[int]] = self._expected()
        waiter = reader.wait_for(positions, unless_done(grown), now_ms() + wait_ms) if positions else None
        if waiter is None:
            grown.cancel()
            await asyncio.sleep(min(wait_ms, POLL_MS) / 1000)
            return
        try:
            await grown
        finally:
            reader.cancel(waiter)

    async def offset_at(self, group: int, time_ms: int) -> int:
        """See ``DurablePort``."""
        fetching = self._working().fetching

        def ask(done: Callable[[tuple[dict[int, int], list[int]]], None]) -> None:
            fetching.times([group], time_ms, lambda found, missing: done((found, missing)), now_ms())

        found, _ = await self._reply(ask)
        if group not in found:
            raise errors.NoLeader.of(group)
        return found[group]

    async def heads(self, groups: Sequence[int], after: Sequence[int], wait_ms: int) -> list[tuple[int, int]]:
        """See ``DurablePort``."""
        node = self._working()
        due_at = now_ms() + wait_ms
        while True:
            found = await self._heads(node, groups)
            left = due_at - now_ms()
            if left <= 0 or not after or any(end > old for (_, end), old in zip(found, after, strict=True)):
                return found
            here = {group: old for group, old in zip(groups, after, strict=True) if node.reader.end_of(group) >= 0}
            await self._grown(node, here, left if len(here) == len(groups) else min(left, POLL_MS))

    async def _heads(self, node: DurableNode, groups: Sequence[int]) -> list[tuple[int, int]]:
        fetching = self._working(node).fetching

        def ask(done: Callable[[dict[int, tuple[int, int]]], None]) -> None:
            fetching.heads(list(groups), lambda found, missing: done(found), now_ms())  # noqa: ARG005

        found = await self._reply(ask)
        for group in groups:
            if group not in found:
                raise errors.NoLeader.of(group)
        return [found[group] for group in groups]


def _is_little(extents: Extents) -> bool:
    size = 0
    for part in extents.parts:
        if not isinstance(part, bytes):
            return False
        size += len(part)
        if size > LITTLE_BYTES_MAX:
            return False
    return True


def _scan(staging: Staging, extents: Extents, wanted: WantedNames | None) -> tuple[bytes, int, int]:
    """In a thread, the copy included."""
    found = scan_extents(staging, extents, wanted)
    return found.data(), found.next_offset, found.suspect
