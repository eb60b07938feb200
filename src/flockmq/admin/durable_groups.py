"""The operations on consumer groups themselves: made, altered, looked at, paused, put elsewhere, deleted.

What a group is stands in cluster state. Where it stands is known to the leaders of its partitions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from flockmq.admin import durable_groups_model as model
from flockmq.admin.durable_common import change, durable, not_found
from flockmq.admin.durable_group_views import details_view, group_view, lag_view
from flockmq.admin.handlers import page
from flockmq.cluster.bindings import parse_binding
from flockmq.cluster.commands import RefusedError
from flockmq.cluster.commands_groups import AlterGroup, CreateGroup, DeleteGroup, ResetGroup
from flockmq.cluster.groups import Binding, ConsumerGroup, is_reader
from flockmq.errors import INVALID_BODY, ApiError, NotReady

if TYPE_CHECKING:
    from flockmq.admin.desk import Desk
    from flockmq.admin.durable_model import InNamespace
    from flockmq.admin.durable_port import DurablePort
    from flockmq.admin.model import Page
    from flockmq.admin.operations import Call, NoQuery
    from flockmq.admin.paging import Entries
    from flockmq.durable.groups.port import PartitionStatus

ASKED_AT_ONCE: Final = 32
"""Groups whose leaders are asked at a time: a node has a bounded number of open questions."""


async def list_groups(desk: Desk, call: Call[model.GroupPage, None]) -> Page[model.GroupInfo]:
    """A page of groups; with their lags when asked."""
    port = durable(desk)
    query = call.query
    groups = port.state().groups

    def walk() -> Entries[ConsumerGroup]:
        for group in list(groups.values()):
            is_wanted = query.namespace in (None, group.namespace) and not is_reader(group.name)
            yield group if is_wanted and (query.shared or not group.made_by_share) else None

    records: Page[ConsumerGroup] = page(desk, "groups", call, walk)
    from flockmq.admin.model import Page as ApiPage

    if not query.lag:
        return ApiPage(items=[group_view(one) for one in records.items], next=records.next)
    turns = asyncio.Semaphore(ASKED_AT_ONCE)
    statuses = await asyncio.gather(*(_status(port, one, turns) for one in records.items))
    now_ms = desk.moments.wall_ms
    items = [group_view(one, lag_view(status, now_ms)) for one, status in zip(records.items, statuses, strict=True)]
    return ApiPage(items=items, next=records.next)


async def _status(port: DurablePort, group: ConsumerGroup, turns: asyncio.Semaphore) -> list[PartitionStatus]:
    async with turns:
        return await port.groups.status(group.id)


async def create_group(desk: Desk, call: Call[NoQuery, model.GroupRequest]) -> model.GroupInfo:
    """Make a group; answered when all its partitions have begun."""
    asked = call.body
    await change(
        desk,
        CreateGroup(
            asked.name,
            _bindings(asked.bindings),
            asked.namespace,
            asked.mode,
            asked.ack_wait_ms,
            asked.max_deliver,
            asked.backoff_ms,
            asked.backoff_max_ms,
            asked.max_in_flight,
            asked.dead_letter or "",
            asked.start,
            asked.hold,
            asked.paused,
        ),
    )
    return await _begun(desk, asked.namespace, asked.name)


async def get_group(desk: Desk, call: Call[InNamespace, None]) -> model.GroupDetails:
    """One group, where it stands, and its members."""
    return await _details(desk, find_group(durable(desk), call.query.namespace, call.path["group"]))


async def alter_group(desk: Desk, call: Call[InNamespace, model.GroupChange]) -> model.GroupInfo:
    """Change a group."""
    asked = call.body
    fields: dict[str, Any] = {}
    if asked.bindings is not UNSET:
        fields["bindings"] = _bindings(asked.bindings)
    for name in (
        "mode",
        "ack_wait_ms",
        "max_deliver",
        "backoff_ms",
        "backoff_max_ms",
        "max_in_flight",
        "hold",
        "paused",
    ):
        if getattr(asked, name) is not UNSET:
            fields[name] = getattr(asked, name)
    if asked.dead_letter is not UNSET:
        fields["dead_letter"] = asked.dead_letter or ""
    namespace, group = call.query.namespace, call.path["group"]
    await change(desk, AlterGroup(group, namespace, **fields))
    return group_view(find_group(durable(desk), namespace, group))


async def pause_group(desk: Desk, call: Call[InNamespace, None]) -> model.GroupInfo:
    """Hand out no more records; what members hold they may settle."""
    return await _pause(desk, call, paused=True)


async def resume_group(desk: Desk, call: Call[InNamespace, None]) -> model.GroupInfo:
    """Hand out records again."""
    return await _pause(desk, call, paused=False)


async def reset_group(desk: Desk, call: Call[InNamespace, model.GroupReset]) -> model.GroupInfo:
    """Begin a new generation elsewhere."""
    namespace, group = call.query.namespace, call.path["group"]
    await change(desk, ResetGroup(group, call.body.to, namespace))
    return await _begun(desk, namespace, group)


async def delete_group(desk: Desk, call: Call[InNamespace, None]) -> None:
    """Forget a group."""
    await change(desk, DeleteGroup(call.path["group"], call.query.namespace))


def find_group(port: DurablePort, namespace: str, name: str) -> ConsumerGroup:
    """A group, or 404."""
    try:
        return port.state().consumer_group(namespace, name)
    except RefusedError as error:
        raise not_found(port, error) from None


async def begin(port: DurablePort, group: ConsumerGroup) -> None:
    """Wait until each partition knows the group's generation; an error that names the first that does not."""
    problems = [one for one in await port.groups.begin(group.id) if one]
    if problems:
        raise NotReady(
            f"The group {group.name} is made, but not all of its partitions have begun: {problems[0]} They will as "
            "soon as they can; see `flockmq group lag`."
        )


async def _begun(desk: Desk, namespace: str, name: str) -> model.GroupInfo:
    port = durable(desk)
    group = find_group(port, namespace, name)
    await begin(port, group)
    return group_view(group)


async def _pause(desk: Desk, call: Call[InNamespace, None], *, paused: bool) -> model.GroupInfo:
    namespace, group = call.query.namespace, call.path["group"]
    await change(desk, AlterGroup(group, namespace, paused=paused))
    return group_view(find_group(durable(desk), namespace, group))


async def _details(desk: Desk, group: ConsumerGroup) -> model.GroupDetails:
    port = durable(desk)
    status = await port.groups.status(group.id)
    return details_view(port.state(), group, status, desk.moments.wall_ms)


def _bindings(asked: list[str | model.GroupBinding]) -> tuple[Binding, ...]:
    found: list[Binding] = []
    for one in asked:
        try:
            found.append(parse_binding(one) if isinstance(one, str) else Binding(one.topic, one.type, one.key))
        except RefusedError as error:
            raise ApiError(INVALID_BODY, str(error)) from None
    return tuple(found)
