"""The operations on cursors: named, replicated positions over the partitions of a topic."""

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
    find_topic(durable(desk).state(), asked.namespace, asked.topic)
    _check_start(asked.start)
    await change(desk, CreateCursor(asked.name, asked.topic, asked.namespace, asked.hold))
    cursor = find_cursor(durable(desk).state(), asked.namespace, asked.name)
    await _put(desk, cursor, asked.start, None)
    return (await _views(desk, [cursor]))[0]


async def get_cursor(desk: Desk, call: Call[InNamespace, None]) -> model.ReadCursor:
    """One cursor."""
    cursor = find_cursor(durable(desk).state(), call.query.namespace, call.path["cursor"])
    return (await _views(desk, [cursor]))[0]


async def reset_cursor(desk: Desk, call: Call[InNamespace, model.CursorChange]) -> model.ReadCursor:
    """Put a cursor somewhere else."""
    cursor = find_cursor(durable(desk).state(), call.query.namespace, call.path["cursor"])
    await _put(desk, cursor, call.body.to, call.body.shard)
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


async def _put(desk: Desk, cursor: CursorRecord, to: str, shard: int | None) -> None:
    port = durable(desk)
    topic = find_topic(port.state(), cursor.namespace, cursor.topic)
    groups = [one.group for one in topic.partitions] if shard is None else [group_of(topic, str(shard))]
    _check_start(to)
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
    try:
        for group, offset in wanted.items():
            await port.commit(cursor.name, group, offset, is_reset=is_reset)
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
    try:
        told = await port.replicas(every) if every else {}
        wanted = [(one.name, group) for one, some in zip(cursors, groups, strict=True) for group in some]
        positions = dict(zip(wanted, await port.positions(wanted), strict=True))
    except FlockError as error:
        raise said_no(error) from None
    heads = {group: _head(some) for group, some in told.items() if some}
    return [
        cursor_view(one, [positions[(one.name, group)] for group in some], [heads.get(group) for group in some])
        for one, some in zip(cursors, groups, strict=True)
    ]
