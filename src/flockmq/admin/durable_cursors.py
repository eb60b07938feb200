"""The operations on cursors: named, replicated positions over the partitions of a topic.

What a cursor is stands in cluster state, where it is in the partitions, by ``CursorRecord.key``: one that is made again
after it was deleted is another. Making one that is there already changes nothing but whether it holds retention, and
that only where it is said.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from flockmq.admin import durable_tenants_model as model
from flockmq.admin.durable_common import (
    change,
    durable,
    find_cursor,
    find_topic,
    group_of,
)
from flockmq.admin.durable_port import NOWHERE
from flockmq.admin.durable_views import cursor_view
from flockmq.admin.handlers import page
from flockmq.cluster.commands import CreateCursor, DeleteCursor
from flockmq.errors import INVALID_BODY, ApiError, NoLeader
from flockmq.log.starts import LATEST, TIME, Start, parse_start

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flockmq.admin.desk import Desk
    from flockmq.admin.durable_model import InNamespace
    from flockmq.admin.durable_port import DurablePort
    from flockmq.admin.model import Page
    from flockmq.admin.operations import Call, NoQuery
    from flockmq.admin.paging import Entries
    from flockmq.cluster.model import CursorRecord
    from flockmq.durable.replicas.status import ReplicaStatus


async def list_cursors(desk: Desk, call: Call[model.NamespacedPage, None]) -> Page[model.ReadCursor]:
    """A page of cursors with their lags."""
    wanted = call.query.namespace
    cursors = durable(desk).state().cursors

    def walk() -> Entries[CursorRecord]:
        for cursor in list(cursors.values()):
            yield cursor if wanted in (None, cursor.namespace) else None

    records: Page[CursorRecord] = page(desk, "cursors", call, walk)
    from flockmq.admin.model import Page as ApiPage

    return ApiPage(items=await _views(desk, records.items), next=records.next)


async def create_cursor(desk: Desk, call: Call[NoQuery, model.CursorRequest]) -> model.ReadCursor:
    """Make a cursor and put it where it shall start."""
    asked = call.body
    port = durable(desk)
    topic = find_topic(port, asked.namespace, asked.topic)
    start = _check_start(asked.start, len(topic.partitions))
    await change(desk, CreateCursor(asked.name, asked.topic, asked.namespace, asked.hold))
    cursor = find_cursor(port, asked.namespace, asked.name)
    groups = {shard: one.group for shard, one in enumerate(topic.partitions)}
    positions = await _positions(port, [(cursor.key, group) for group in groups.values()])
    unknown = [shard for shard, group in groups.items() if positions[(cursor.key, group)] is None]
    if unknown:
        raise NoLeader(f"{_unanswered(unknown)}; it was not moved. Create it again in a moment.")
    fresh = {shard: group for shard, group in groups.items() if positions[(cursor.key, group)] == NOWHERE}
    # A position that is there stays: shards were added since, or the cursor's creator died half way. A reader that
    # commits just now is not taken back.
    await _put(port, cursor, start, fresh, is_reset=False)
    return (await _views(desk, [cursor]))[0]


async def get_cursor(desk: Desk, call: Call[InNamespace, None]) -> model.ReadCursor:
    """One cursor."""
    cursor = find_cursor(durable(desk), call.query.namespace, call.path["cursor"])
    return (await _views(desk, [cursor]))[0]


async def reset_cursor(desk: Desk, call: Call[InNamespace, model.CursorChange]) -> model.ReadCursor:
    """Put a cursor somewhere else."""
    port = durable(desk)
    cursor = find_cursor(port, call.query.namespace, call.path["cursor"])
    topic = find_topic(port, cursor.namespace, cursor.topic)
    shard = call.body.shard
    groups = {number: one.group for number, one in enumerate(topic.partitions)}
    if shard is not None:
        groups = {shard: group_of(topic, str(shard))}
    start = _check_start(call.body.to, len(topic.partitions), is_one=shard is not None)
    if start.by_shard is not None:
        if shard is not None:
            raise ApiError(INVALID_BODY, "`shard` and offset:SHARD=N,... both choose shards; with `shard` use offset:N")
        # Positions that are not named stay.
        groups = {number: group for number, group in groups.items() if number in start.by_shard}
    await _put(port, cursor, start, groups)
    return (await _views(desk, [cursor]))[0]


async def commit_cursor(desk: Desk, call: Call[InNamespace, model.CursorCommit]) -> None:
    """A reader tells how far it has come."""
    port = durable(desk)
    cursor = find_cursor(port, call.query.namespace, call.path["cursor"])
    topic = find_topic(port, cursor.namespace, cursor.topic)
    wanted = {group_of(topic, str(one.shard)): one.offset for one in call.body.positions}
    await _commit(port, cursor, wanted, is_reset=False)


async def delete_cursor(desk: Desk, call: Call[InNamespace, None]) -> None:
    """Forget a cursor."""
    await change(desk, DeleteCursor(call.path["cursor"], call.query.namespace))


async def _put(
    port: DurablePort, cursor: CursorRecord, start: Start, groups: Mapping[int, int], *, is_reset: bool = True
) -> None:
    """Put a cursor in some shards, whose groups these are by shard."""
    if not groups:
        return
    is_time = start.what == TIME
    found = await port.locate(list(groups.values()), start if is_time else Start(LATEST))
    offsets = [
        one.offset if is_time else start.offset_in(shard, one.first, one.end)
        for shard, one in zip(groups, found, strict=True)
    ]
    await _commit(port, cursor, dict(zip(groups.values(), offsets, strict=True)), is_reset=is_reset)


async def _commit(port: DurablePort, cursor: CursorRecord, wanted: dict[int, int], *, is_reset: bool) -> None:
    # Each partition is a group of its own: their commits need not wait for each other.
    await asyncio.gather(*(port.commit(cursor.key, group, to, is_reset=is_reset) for group, to in wanted.items()))


def _check_start(to: str, shards: int, *, is_one: bool = False) -> Start:
    """Where a cursor shall be put, in all of so many shards or in one of them."""
    try:
        start = parse_start(to)
    except ValueError as error:
        raise ApiError(INVALID_BODY, f"A cursor can't be put there: {error}") from None
    problem = "" if is_one and start.by_shard is None else start.refusal(shards)
    if problem:
        raise ApiError(INVALID_BODY, f"A cursor can't be put to {to[:64]!r}: {problem}")
    return start


def _unanswered(shards: Sequence[int]) -> str:
    """Why it is not known where a cursor stands in these shards."""
    return f"No leader of {_shards(shards)} answers, so it is not known where the cursor stands there"


def _shards(shards: Sequence[int]) -> str:
    which = ", ".join(str(shard) for shard in shards[:10]) + (", ..." if len(shards) > 10 else "")
    return f"shard {which}" if len(shards) == 1 else f"shards {which}"


def _head(told: Sequence[ReplicaStatus]) -> tuple[int, int]:
    return min(one.first for one in told), max(one.end for one in told)


async def _views(desk: Desk, cursors: Sequence[CursorRecord]) -> list[model.ReadCursor]:
    """Cursors with positions and lags. What no node answers for is null, and said to be unknown."""
    port = durable(desk)
    state = port.state()
    topics = [state.topics.get(f"{one.namespace}/{one.topic}") for one in cursors]
    groups = [[one.group for one in topic.partitions] if topic is not None else [] for topic in topics]
    every = sorted({group for some in groups for group in some})
    keys = [one.key for one in cursors]
    told = await port.replicas(every) if every else {}
    positions = await _positions(port, [(key, group) for key, some in zip(keys, groups, strict=True) for group in some])
    heads = {group: _head(some) for group, some in told.items() if some}
    found = []
    for one, key, some in zip(cursors, keys, groups, strict=True):
        offsets = [positions[(key, group)] for group in some]
        ends = [heads.get(group) for group in some]
        found.append(cursor_view(one, offsets, ends, _problem(offsets, ends)))
    return found


def _problem(offsets: Sequence[int | None], heads: Sequence[tuple[int, int] | None]) -> str:
    """Why something about a cursor is not known."""
    unknown = [shard for shard, offset in enumerate(offsets) if offset is None]
    silent = [shard for shard, head in enumerate(heads) if head is None]
    if not unknown and not silent:
        return ""
    what = _unanswered(unknown) if unknown else f"No replica of {_shards(silent)} answers, so its end is not known"
    return f"{what}; see `flockmq partition list --unhealthy`."


async def _positions(port: DurablePort, wanted: list[tuple[str, int]]) -> dict[tuple[str, int], int | None]:
    """Where cursors stand, by key and group: an offset, NOWHERE, or None for unknown."""
    return dict(zip(wanted, await port.positions(wanted), strict=True))
