"""The logs of partitions for the admin API: from the replica here, else from nodes that have one.

```
 read    a replica here --> files in a thread, off the loop that serves MQTT
             | nothing more here --> wait, if asked to; then the leader is asked whether there is really no more
             ` none, or behind ----> ``Logs.fetch`` from another node, in smaller pieces
                                     no replica has it: is it beyond the end, which a quorum confirms? then say so
 locate  ``Logs.locate``; a reader that waits is woken by the replica here, or looks again now and then
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from flockmq.admin.durable_port import FETCH_BYTES_MAX, Chunk
from flockmq.drivers.clock import now_ms
from flockmq.durable.logs.local import named
from flockmq.durable.logs.locating import QUORUM
from flockmq.errors import Behind, BeyondEnd, Damaged, NoAnswer, NoLeader, NoReplica, OffsetGone
from flockmq.log.batch import BatchError
from flockmq.log.extents_reading import Again, filter_batches, scan_extents
from flockmq.log.starts import LATEST, Start
from flockmq.server.durable_asking import Asking

if TYPE_CHECKING:
    from flockmq.cluster.wanted_names import WantedNames
    from flockmq.durable.logs.locating import Located
    from flockmq.log.extents import Extents
    from flockmq.log.extents_reading import Wants
    from flockmq.log.staging import Staging
    from flockmq.server.cluster import ClusterService

READERS: Final = 2
"""Threads that read files. Disks are not faster by more of them, and reading must not take all cores."""
READ_TRIES: Final = 5
POLL_MS: Final = 500
"""How often ends of partitions without a replica here are looked at, for a reader that waits."""
SCAN_BYTES_MAX: Final = 32 * 1_048_576
"""Most bytes of batches that one answer reads for a reader with filters."""
LITTLE_BYTES_MAX: Final = 65_536
"""Batches in memory up to this size are read at once: starting a thread would take longer."""
LOOK_S: Final = 0.05
LOOKS_MAX: Final = 40
"""How long a reader waits for the check of damaged files."""
FETCH_WAIT_MS: Final = 2_000
AGAIN_MS: Final = 20
"""The pause after an empty fetch. Usually the fetch has waited at the other node; with too many waits it has not."""


class LogView(Asking):
    """See the module; the part of ``DurablePort`` that is about logs."""

    def __init__(self, service: ClusterService) -> None:
        super().__init__(service)
        self._threads = ThreadPoolExecutor(READERS, "log-reader")

    async def read(
        self, group: int, offset: int, bytes_max: int, wait_ms: int, wanted: WantedNames | None = None
    ) -> Chunk:
        """See ``DurablePort``. A follower may not know all commits: before it says "nothing", the leader is asked."""
        due_at = now_ms() + wait_ms
        while True:
            left = max(due_at - now_ms(), 0)
            is_here = True
            try:
                chunk = await self._read_here(group, offset, bytes_max, wanted)
            except (OffsetGone, Behind, Damaged, NoReplica) as error:
                is_here = False
                if isinstance(error, Behind):
                    await self._check_end(group, offset)
                chunk = await self._fetch(group, offset, bytes_max, min(left, FETCH_WAIT_MS), wanted)
            if chunk.following > offset:
                return chunk
            if not left:
                return await self._confirm_end(group, offset, bytes_max, chunk, wanted)
            await self._grown({group: offset} if is_here else {}, left if is_here else min(left, AGAIN_MS))

    async def _confirm_end(
        self, group: int, offset: int, bytes_max: int, chunk: Chunk, wanted: WantedNames | None
    ) -> Chunk:
        """This replica has nothing from the offset on: ask the leader whether the log ends there."""
        [found] = await self._locate([group], Start(LATEST))
        if found.end <= offset:
            return chunk
        return await self._fetch(group, offset, bytes_max, FETCH_WAIT_MS, wanted, found.end)

    async def _check_end(self, group: int, offset: int) -> None:
        """Tell a reader that asks for more than there is so, instead of to wait. Without a leader no node can say."""
        found = await self._await(self._working().logs.locate([group], Start(LATEST), QUORUM))
        if group in found and found[group].end < offset:
            raise BeyondEnd(found[group].end, f"Offset {offset}", named(group))

    async def _read_here(self, group: int, offset: int, bytes_max: int, wanted: WantedNames | None) -> Chunk:
        local = self._working().local
        wants = None if wanted is None else wanted.wants_any
        scan_bytes_max = 0 if wants is None else SCAN_BYTES_MAX
        for _ in range(READ_TRIES):
            extents = local.extents(group, offset, bytes_max, scan_bytes_max=scan_bytes_max)
            first, end = local.first(group), local.end(group)
            staging = self._node.engine.store.staging
            try:
                if extents.is_little(LITTLE_BYTES_MAX):
                    found = scan_extents(staging, extents, wants)
                    return Chunk(found.data(), first, end, found.next_offset)
                loop = asyncio.get_running_loop()
                data, following, suspect = await loop.run_in_executor(self._threads, _scan, staging, extents, wants)
            except Again:
                continue
            if suspect:
                self._node.scrubbing.suspect(group, suspect)
                if following == offset:
                    await self._looked_at(group)
                    raise Damaged(offset, offset + 1, named(group))
            return Chunk(data, first, end, following)
        self._node.scrubbing.suspect(group, extents.first_index())  # a file is gone that no checkpoint removed
        await self._looked_at(group)
        raise Damaged(offset, offset + 1, named(group))

    async def _looked_at(self, group: int) -> None:
        """Wait for the check of damaged files, or until it takes too long."""
        for _ in range(LOOKS_MAX):
            await asyncio.sleep(LOOK_S)
            if not self._working().scrubbing.is_looking_at(group):
                return

    async def _fetch(
        self,
        group: int,
        offset: int,
        bytes_max: int,
        wait_ms: int,
        wanted: WantedNames | None,
        until: int = 0,
    ) -> Chunk:
        logs = self._working().logs
        found = await self._await(logs.fetch(group, offset, min(bytes_max, FETCH_BYTES_MAX), wait_ms, until))
        if isinstance(found.error, Behind):
            await self._check_end(group, offset)
        if found.error is not None:
            raise found.error
        try:
            batches, following = filter_batches(found.batches, offset, None if wanted is None else wanted.wants_any)
        except BatchError as error:
            raise NoAnswer(f"The answer of another node about {named(group)} can't be read: {error}") from error
        return Chunk(b"".join(batches), found.first, found.end, following)

    async def _grown(self, positions: dict[int, int], wait_ms: int) -> None:
        """Until one of these logs, which have replicas here, goes on; or the time is over."""
        watch = self._working().logs.watch(positions) if positions else None
        if watch is None:
            await asyncio.sleep(min(wait_ms, POLL_MS) / 1000)
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._future(watch.then)
        finally:
            watch.cancel()

    async def locate(
        self, groups: Sequence[int], start: Start, after: Sequence[int] = (), wait_ms: int = 0
    ) -> list[Located]:
        """See ``DurablePort``."""
        due_at = now_ms() + wait_ms
        while True:
            found = await self._locate(groups, start)
            left = due_at - now_ms()
            if left <= 0 or not after or any(one.end > old for one, old in zip(found, after, strict=True)):
                return found
            here = {group: old for group, old in zip(groups, after, strict=True) if self._node.local.is_here(group)}
            await self._grown(here, left if len(here) == len(groups) else min(left, POLL_MS))

    async def _locate(self, groups: Sequence[int], start: Start) -> list[Located]:
        found = await self._await(self._working().logs.locate(list(groups), start))
        for group in groups:
            if group not in found:
                raise NoLeader.of(group)
        return [found[group] for group in groups]


def _scan(staging: Staging, extents: Extents, wants: Wants | None) -> tuple[bytes, int, int]:
    """In a thread, the copy included."""
    found = scan_extents(staging, extents, wants)
    return found.data(), found.next_offset, found.suspect
