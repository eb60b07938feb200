"""The operations on cursors: named, replicated positions over the partitions of a topic.

What a cursor is stands in cluster state, where it is in the partitions, by ``key_of(namespace, name)``. Making one that
is there already changes nothing but whether it holds retention.
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
    parse_moment,
    said_no,
)
from flockmq.admin.durable_views import cursor_view
from flockmq.admin.errors import INVALID_BODY, ApiError
from flockmq.admin.handlers import page
from flockmq.cluster.commands import CreateCursor, DeleteCursor
from flockmq.cluster.tables import key_of
from flockmq.errors import FlockError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flockmq.admin.desk import Desk
    from flockmq.admin.durable_model import InNamespace
    from flockmq.admin.durable_port import DurablePort, ReplicaStatus
    from flockmq.admin.model import Page
    from flockmq.admin.operations import Call, NoQuery
    from flockmq.admin.paging import Entries
    from flockmq.cluster.model import CursorRecord


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
    topic = find_topic(port.state(), asked.namespace, asked.topic)
    _check_start(asked.start)
    key = key_of(asked.namespace, asked.name)
    is_known = key in port.state().cursors
    await change(desk, CreateCursor(asked.name, asked.topic, asked.namespace, asked.hold))
    cursor = find_cursor(port.state(), asked.namespace, asked.name)
    groups = [one.group for one in topic.partitions]
    if is_known:
        # One that is there stays where it stands. Shards were added since, or whoever made it died half way.
        positions = await _positions(port, [(key, group) for group in groups])
        groups = [group for group in groups if positions[(key, group)] is None]
    await _put(port, cursor, asked.start, groups)
    return (await _views(desk, [cursor]))[0]


async def get_cursor(desk: Desk, call: Call[InNamespace, None]) -> model.ReadCursor:
    """One cursor."""
    cursor = find_cursor(durable(desk).state(), call.query.namespace, call.path["cursor"])
    return (await _views(desk, [cursor]))[0]


async def reset_cursor(desk: Desk, call: Call[InNamespace, model.CursorChange]) -> model.ReadCursor:
    """Put a cursor somewhere else."""
    port = durable(desk)
    cursor = find_cursor(port.state(), call.query.namespace, call.path["cursor"])
    topic = find_topic(port.state(), cursor.namespace, cursor.topic)
    shard = call.body.shard
    groups = [one.group for one in topic.partitions] if shard is None else [group_of(topic, str(shard))]
    _check_start(call.body.to)
    await _put(port, cursor, call.body.to, groups)
    return (await _views(desk, [cursor]))[0]


async def commit_cursor(desk: Desk, call: Call[InNamespace, model.CursorCommit]) -> None:
    """A reader tells how far it has come."""
    port = durable(desk)
    state = port.state()
    cursor = find_cursor(state, call.query.namespace, call.path["cursor"])
    topic = find_topic(state, cursor.namespace, cursor.topic)
    wanted = {group_of(topic, str(one.shard)): one.offset for one in call.body.positions}
    await _commit(port, cursor, wanted, is_reset=False)


async def delete_cursor(desk: Desk, call: Call[InNamespace, None]) -> None:
    """Forget a cursor."""
    await change(desk, DeleteCursor(call.path["cursor"], call.query.namespace))


async def _put(port: DurablePort, cursor: CursorRecord, to: str, groups: Sequence[int]) -> None:
    if not groups:
        return
    try:
        if to.startswith("time:"):
            moment = parse_moment(to.removeprefix("time:"), "The time")
            offsets = await asyncio.gather(*(port.offset_at(group, moment) for group in groups))
        else:
            heads = await port.heads(groups, (), 0)
            offsets = [_offset(to, first, end) for first, end in heads]
    except FlockError as error:
        raise said_no(error) from None
    await _commit(port, cursor, dict(zip(groups, offsets, strict=True)), is_reset=True)


async def _commit(port: DurablePort, cursor: CursorRecord, wanted: dict[int, int], *, is_reset: bool) -> None:
    key = key_of(cursor.namespace, cursor.name)
    try:
        # Each partition is a group of its own: their commits need not wait for each other.
        await asyncio.gather(*(port.commit(key, group, to, is_reset=is_reset) for group, to in wanted.items()))
    except FlockError as error:
        raise said_no(error) from None


def _check_start(to: str) -> None:
    number = to.removeprefix("offset:")
    if to in ("earliest", "latest") or to.startswith("time:"):
        return
    if number == to or not (number.isascii() and number.isdigit() and len(number) < 19):
        raise ApiError(
            INVALID_BODY,
            f"A cursor can't be put to {to[:64]!r}; use earliest, latest, offset:N or time:...",
        )


def _offset(to: str, first: int, end: int) -> int:
    if to == "earliest":
        return first
    return end if to == "latest" else min(max(int(to.removeprefix("offset:")), first), end)


def _head(told: Sequence[ReplicaStatus]) -> tuple[int, int]:
    return min(one.first for one in told), max(one.end for one in told)


async def _views(desk: Desk, cursors: Sequence[CursorRecord]) -> list[model.ReadCursor]:
    """Cursors with positions and lags. What no node answers for is left open."""
    port = durable(desk)
    state = port.state()
    topics = [state.topics.get(f"{one.namespace}/{one.topic}") for one in cursors]
    groups = [[one.group for one in topic.partitions] if topic is not None else [] for topic in topics]
    every = sorted({group for some in groups for group in some})
    keys = [key_of(one.namespace, one.name) for one in cursors]
    try:
        told = await port.replicas(every) if every else {}
    except FlockError as error:
        raise said_no(error) from None
    positions = await _positions(port, [(key, group) for key, some in zip(keys, groups, strict=True) for group in some])
    heads = {group: _head(some) for group, some in told.items() if some}
    return [
        cursor_view(one, [positions[(key, group)] for group in some], [heads.get(group) for group in some])
        for one, key, some in zip(cursors, keys, groups, strict=True)
    ]


async def _positions(port: DurablePort, wanted: list[tuple[str, int]]) -> dict[tuple[str, int], int | None]:
    """Where cursors stand, by key and group."""
    try:
        return dict(zip(wanted, await port.positions(wanted), strict=True))
    except FlockError as error:
        raise said_no(error) from None
