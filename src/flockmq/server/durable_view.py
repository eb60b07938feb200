"""Cluster state and durable topics as the admin API asks for them, from whichever nodes can answer.

```
 API --> DurableView --> Meta.submit       commands, decided by group 0
                    |--> Fetching, Cursors  leaders and replicas: offsets, statuses, positions
                    |--> Reader             a replica here: files are read in a thread, off the loop that serves MQTT
                    `--> Appending          records, answered after commit
```
Everything of ``durable/`` answers by a callback; here callbacks become something to await. Whoever stops waiting
(a caller that went away) is not told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from flockmq.admin.durable_port import (
    FETCH_BYTES_MAX,
    BehindError,
    Chunk,
    GoneError,
    Message,
    MetaStatus,
    ReplicaStatus,
    UnknownOutcomeError,
)
from flockmq.cluster.filters import namespace_prefix
from flockmq.drivers.clock import now_ms
from flockmq.durable.cursors import DONE, OFFSET, Moved, Position
from flockmq.durable.meta import GROUP
from flockmq.durable.reading import Again, Behind, Gone, NotHere, read_extents
from flockmq.errors import FlockError
from flockmq.mqtt.run import make_run
from flockmq.node.publishing import forwardable
from flockmq.server.durable_reports import DECIDERS, SEGMENTS, Deciders, Reports, role_of

if TYPE_CHECKING:
    from flockmq.admin.metrics import Number
    from flockmq.cluster.commands import Command, Result
    from flockmq.cluster.dump import SegmentReport
    from flockmq.cluster.model import TopicRecord
    from flockmq.cluster.state import ClusterState
    from flockmq.durable.answers import Place
    from flockmq.durable.fetching import Fetched
    from flockmq.durable.fetching import ReplicaStatus as Told
    from flockmq.durable.node import DurableNode
    from flockmq.mqtt.run import Run
    from flockmq.server.cluster import ClusterService

GROUPS_PER_QUESTION: Final = 1_024
READERS: Final = 2
"""Threads that read files. Disks are not faster by more of them, and reading must not take all cores."""
READ_TRIES: Final = 5
POLL_MS: Final = 500
"""How often ends of partitions without a replica here are looked at, for somebody who waits."""
FETCH_WAIT_MS: Final = 2_000
ANSWER_S_MAX: Final = 15.0
"""Everything that is asked answers by itself sooner than that, if only to say that it can't."""
FIGURES_MS: Final = 500
T = TypeVar("T")


class DurableView:
    """See the module; a ``DurablePort``."""

    def __init__(self, service: ClusterService) -> None:
        self._service = service
        self._threads = ThreadPoolExecutor(READERS, "log-reader")
        self._figures: dict[str, Number] = {}
        self._figures_at = 0
        self._reports = Reports(self._node)
        service.node.calls.serve(SEGMENTS, self._reports.segments)
        service.node.calls.serve(DECIDERS, self._reports.deciders)

    def close(self) -> None:
        """No more reading; what is being read is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _node(self) -> DurableNode:
        if self._service.durable is None:
            raise BehindError("This node is not ready for durable topics yet; ask another one, or again in a moment.")
        return self._service.durable.node

    def _working(self) -> DurableNode:
        """The node, when it can ask others and answer for itself."""
        node = self._node()
        if node.engine.stopped:
            raise BehindError(f"This node takes part no more: {node.engine.stopped} Ask another one.")
        return node

    # --- what is known here ---

    def state(self) -> ClusterState:
        """See ``DurablePort``."""
        return self._node().meta.state

    def figures(self) -> dict[str, Number]:
        """See ``DurablePort``."""
        now = now_ms()
        if now - self._figures_at >= FIGURES_MS or not self._figures:
            self._figures = self._count()
            self._figures_at = now
        return self._figures

    def _count(self) -> dict[str, Number]:
        if self._service.durable is None:
            return {}
        node = self._service.durable.node
        engine = node.engine
        state = node.meta.state
        groups = [group for group in engine.replicas if group != GROUP]
        broken = sum(1 for group in groups if group in engine.host.broken or not engine.leader_of(group))
        return {
            "cluster_state_index": state.index,
            "cluster_state_leader": int(node.meta.is_leader),
            "topics": len(state.topics),
            "partitions": len(state.places),
            "partitions_led": sum(1 for group in groups if engine.is_leader(group)),
            "partition_replicas": len(groups),
            "partition_replicas_unhealthy": broken,
            "partitions_moving": len(state.moving()),
        }

    def ends(self) -> dict[int, int]:
        """See ``DurablePort``."""
        if self._service.durable is None:
            return {}
        node = self._service.durable.node
        engine = node.engine
        led = [group for group in engine.replicas if group != GROUP and engine.is_leader(group)]
        return {group: max(node.reader.end_of(group), 0) for group in led}

    # --- what others are asked ---

    async def command(self, command: Command) -> Result:
        """See ``DurablePort``."""
        node = self._working()
        return await self._reply(lambda done: node.meta.submit(command, done, now_ms()))

    async def meta(self) -> MetaStatus:
        """See ``DurablePort``."""
        node = self._working()
        found = self._reports.deciders_here()
        if found is None:
            heads = node.meta.facts.heads()
            for peer in [peer for peer, head in heads.items() if head.has_replica]:
                body = await self._call(peer, DECIDERS, b"")
                found = Reports.read_deciders(body) if body else None
                if found is not None:
                    break
        found = found or Deciders(0, (), ())
        return MetaStatus(found.leader, found.voters, found.learners, node.meta.state.index)

    async def replicas(self, groups: Sequence[int] | None) -> dict[int, list[ReplicaStatus]]:
        """See ``DurablePort``."""
        state = self._working().meta.state
        wanted = list(state.places) if groups is None else [group for group in groups if group in state.places]
        by_node: dict[int, list[int]] = {}
        for group in wanted:
            for member in state.partition(group).members():
                by_node.setdefault(member, []).append(group)
        asked = [
            (member, some[at : at + GROUPS_PER_QUESTION])
            for member, some in by_node.items()
            for at in range(0, len(some), GROUPS_PER_QUESTION)
        ]
        answers = await asyncio.gather(*(self._statuses(member, some) for member, some in asked))
        found: dict[int, list[ReplicaStatus]] = {group: [] for group in wanted}
        learners = {(group, node) for group in wanted for node in _learners(state, group)}
        for (member, _), told in zip(asked, answers, strict=True):
            for one in told or ():
                if one.group in found:
                    found[one.group].append(_status(member, one, learners))
        return found

    async def _statuses(self, member: int, groups: list[int]) -> list[Told] | None:
        fetching = self._working().fetching
        return await self._reply(lambda done: fetching.statuses(member, groups, done, now_ms()))

    async def segments(self) -> list[SegmentReport]:
        """See ``DurablePort``."""
        me = self._service.node.node_id
        peers = [me, *self._service.links.connected()]
        found = await asyncio.gather(*(self._segments_of(peer, me) for peer in peers))
        return [report for reports in found for report in reports]

    async def _segments_of(self, peer: int, me: int) -> list[SegmentReport]:
        """All segments of a node, a bounded number at a time."""
        found: list[SegmentReport] = []
        after = 0
        while True:
            question = Reports.ask_segments(after)
            body = self._reports.segments(question) if peer == me else await self._call(peer, SEGMENTS, question)
            page = Reports.read_segments(body) if body else []
            if not page or page[-1].group <= after:
                return found
            found += page
            after = page[-1].group

    # --- logs ---

    async def read(self, group: int, offset: int, bytes_max: int, wait_ms: int) -> Chunk:
        """See ``DurablePort``. Before a follower, who may not know all commits, says "nothing", its leader is asked."""
        due_at = now_ms() + wait_ms
        while True:
            left = max(due_at - now_ms(), 0)
            try:
                chunk = await self._read_here(group, offset, bytes_max)
            except (NotHere, Behind):
                chunk = await self._fetch(group, offset, bytes_max, min(left, FETCH_WAIT_MS))
            except Gone as error:
                raise GoneError(str(error), error.first) from None
            else:
                if not chunk.batches and left:
                    await self._grown({group: offset}, left)
                    continue
                if not chunk.batches:
                    return await self._confirm_end(group, offset, bytes_max, chunk)
            if chunk.batches or not left:
                return chunk

    async def _confirm_end(self, group: int, offset: int, bytes_max: int, chunk: Chunk) -> Chunk:
        """Nothing is here from this offset on: is there nothing at all?"""
        if self._working().engine.is_leader(group):
            return chunk
        [(_, end)] = await self._heads([group])
        return chunk if end <= offset else await self._fetch(group, offset, bytes_max, FETCH_WAIT_MS, end)

    async def _read_here(self, group: int, offset: int, bytes_max: int) -> Chunk:
        node = self._working()
        for _ in range(READ_TRIES):
            extents = node.reader.extents(group, offset, bytes_max)
            first, end = node.reader.first_of(group), node.reader.end_of(group)
            staging = node.engine.store.staging
            try:
                if all(isinstance(part, bytes) for part in extents.parts):
                    batches = read_extents(staging, extents)
                else:
                    loop = asyncio.get_running_loop()
                    batches = await loop.run_in_executor(self._threads, read_extents, staging, extents)
            except Again:
                continue
            return Chunk(b"".join(batches), first, end)
        raise BehindError("The files of this partition change too quickly to be read here; ask another node.")

    async def _fetch(self, group: int, offset: int, bytes_max: int, wait_ms: int, until: int = 0) -> Chunk:
        size = min(bytes_max, FETCH_BYTES_MAX)
        fetching = self._working().fetching

        def ask(done: Callable[[Fetched], None]) -> None:
            fetching.fetch(group, offset, size, done, now_ms(), until, wait_ms)

        found = await self._reply(ask)
        if isinstance(found.error, Gone):
            raise GoneError(str(found.error), found.first)
        if found.error is not None:
            raise BehindError(str(found.error))
        return Chunk(b"".join(found.batches), found.first, found.end)

    async def _grown(self, positions: dict[int, int], wait_ms: int) -> None:
        """Until one of these logs, which have replicas here, goes on; or the time is over."""
        reader = self._working().reader
        grown: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        waiter = reader.wait_for(positions, _unless_done(grown), now_ms() + wait_ms) if positions else None
        if waiter is None:
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
            raise _no_leader(group)
        return found[group]

    async def heads(self, groups: Sequence[int], after: Sequence[int], wait_ms: int) -> list[tuple[int, int]]:
        """See ``DurablePort``."""
        due_at = now_ms() + wait_ms
        while True:
            found = await self._heads(groups)
            left = due_at - now_ms()
            if left <= 0 or not after or any(end > old for (_, end), old in zip(found, after, strict=True)):
                return found
            reader = self._working().reader
            here = {group: old for group, old in zip(groups, after, strict=True) if reader.end_of(group) >= 0}
            await self._grown(here, left if len(here) == len(groups) else min(left, POLL_MS))

    async def _heads(self, groups: Sequence[int]) -> list[tuple[int, int]]:
        fetching = self._working().fetching

        def ask(done: Callable[[dict[int, tuple[int, int]]], None]) -> None:
            fetching.heads(list(groups), lambda found, missing: done(found), now_ms())  # noqa: ARG005

        found = await self._reply(ask)
        for group in groups:
            if group not in found:
                raise _no_leader(group)
        return [found[group] for group in groups]

    async def publish(
        self, topic: TopicRecord, client: bytes, messages: Sequence[Message]
    ) -> list[tuple[int, int] | str]:
        """See ``DurablePort``."""
        node = self._working()
        found = node.cluster.broker.node.table.topics.topics.get(f"{topic.namespace}/{topic.name}".encode())
        if found is None:
            raise BehindError("This node is only about to hear of the topic; try again in a moment.")
        now = now_ms()
        name = namespace_prefix(topic.namespace) + client if client else b""
        runs = [_run(message, now) for message in messages]
        answers = [
            self._future(lambda done, run=run: node.appending.publish(found, run, name, done, now))  # type: ignore[misc]
            for run in runs
        ]
        self._service.runner.runner.flush_soon()
        places: list[Place | str] = []
        for answer in await asyncio.gather(*answers):
            if answer is None:
                raise UnknownOutcomeError(
                    "Nobody could say in time whether the records were stored; look before publishing them again."
                )
            places += answer
        return places

    # --- cursors ---

    async def positions(self, wanted: Sequence[tuple[str, int]]) -> list[int | None]:
        """See ``DurablePort``."""
        cursors = self._working().cursors
        names: dict[int, list[bytes]] = {}
        for name, group in wanted:
            names.setdefault(group, []).append(name.encode())
        same: dict[tuple[bytes, ...], list[int]] = {}
        for group, some in names.items():
            same.setdefault(tuple(some), []).append(group)

        def asking(some: tuple[bytes, ...], groups: list[int]) -> Callable[[Callable[[list[Position]], None]], None]:
            return lambda done: cursors.positions(
                groups,
                list(some),
                lambda found, missing: done(found),  # noqa: ARG005
                now_ms(),
            )

        answers = await asyncio.gather(*(self._reply(asking(some, groups)) for some, groups in same.items()))
        found = {(one.name.decode(), one.group): one.offset for positions in answers for one in positions}
        return [offset if (offset := found.get(one, -1)) >= 0 else None for one in wanted]

    async def commit(self, cursor: str, group: int, offset: int, *, is_reset: bool = False) -> None:
        """See ``DurablePort``."""
        cursors = self._working().cursors
        name = cursor.encode()

        def ask(done: Callable[[Moved], None]) -> None:
            if is_reset:
                cursors.reset(group, name, OFFSET, offset, done, now_ms())
            else:
                cursors.commit(group, name, offset, done, now_ms())

        moved = await self._reply(ask)
        if moved.code != DONE:
            raise BehindError(moved.reason)

    # --- from callbacks to what can be awaited ---

    async def _reply(self, ask: Callable[[Callable[[T], None]], None]) -> T:
        answered = self._future(ask)
        self._service.runner.runner.flush_soon()
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await answered
        except TimeoutError:
            raise BehindError("Nobody answered in time; ask another node, or again in a moment.") from None

    def _future(self, ask: Callable[[Callable[[T], None]], None]) -> asyncio.Future[T]:
        answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        ask(_unless_done(answered))
        return answered

    async def _call(self, peer: int, kind: int, body: bytes) -> bytes | None:
        calls = self._service.node.calls
        return await self._reply(lambda done: calls.ask(peer, kind, body, done, now_ms()))


def _unless_done(answered: asyncio.Future[T]) -> Callable[[T], None]:
    """Somebody who waited may be gone."""

    def answer(value: T) -> None:
        if not answered.done():
            answered.set_result(value)

    return answer


def _run(message: Message, now: int) -> Run:
    properties = message.properties
    encoded = b"" if properties is None else forwardable(properties)
    expires_at = 0
    if properties is not None and properties.message_expiry_s is not None:
        expires_at = now + max(properties.message_expiry_s * 1000, 1)
    return make_run(5, 1, message.retain, message.topic, message.payload, encoded, expires_at)


def _status(member: int, told: Told, learners: set[tuple[int, int]]) -> ReplicaStatus:
    problem = "This replica has stopped; the log of its node says why." if told.is_broken else ""
    role = 0 if told.is_broken else role_of(told.role, (told.group, member) in learners)
    return ReplicaStatus(member, role, told.leader, told.term, told.first, told.end, told.bytes, problem)


def _learners(state: ClusterState, group: int) -> list[int]:
    """Who is on the way to become a replica."""
    if group not in state.places:
        return []  # deleted while nodes were asked
    partition = state.partition(group)
    return [node for node in partition.members() if node not in partition.replicas]


def _no_leader(group: int) -> FlockError:
    return BehindError(f"No leader of partition group {group} answered in time; try again in a moment.")
