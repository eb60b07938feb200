"""Whether consumer groups take a message to a topic name, and which member gets it, for ``explain``.

| what is found, in this order | takes |
| --- | --- |
| no binding selects the name, whatever the properties | no |
| only user properties could select it | maybe |
| a binding selects it; a user property `routing-key` may say otherwise | yes |
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from flockmq.admin import cluster_model as model
from flockmq.admin.durable_common import owner_of
from flockmq.cluster.groups import KEY, STREAM, is_reader
from flockmq.cluster.selection import ROUTING_KEY, Selection
from flockmq.errors import FlockError
from flockmq.wording import counted

if TYPE_CHECKING:
    from flockmq.admin.durable_port import DurablePort
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.cluster.model import TopicRecord

GROUPS_MAX: Final = 50
"""Groups that one answer tells of."""
MEMBERS_SHOWN: Final = 5


async def group_verdicts(port: DurablePort, name: bytes) -> list[model.GroupVerdict]:
    """What the groups that read the topic of a name (in internal form) do with a message to it."""
    state = port.state()
    topic = owner_of(state, name)
    if topic is None:
        return []
    groups = [
        group
        for group in state.groups.values()
        if group.namespace == topic.namespace and topic.name in group.topics() and not is_reader(group.name)
    ]
    return list(await asyncio.gather(*(_verdict(port, group, topic, name) for group in groups[:GROUPS_MAX])))


async def _verdict(port: DurablePort, group: ConsumerGroup, topic: TopicRecord, name: bytes) -> model.GroupVerdict:
    selection = Selection.of(group, topic)
    key = selection.routing_key(name).decode("utf-8", "replace")
    if selection.names(name) is not True and not selection.plain(name):
        if not selection.by_properties:
            return model.GroupVerdict(group=group.name, takes="no", reasons=["No binding selects this topic name."])
        why = f"Only user properties could select it: {ROUTING_KEY.decode()!r}, or headers. Its own key is {key!r}."
        return model.GroupVerdict(group=group.name, takes="maybe", reasons=[why])
    reasons = (
        [] if selection.names(name) else [f"Its routing key is {key!r}; the user property `routing-key` replaces that."]
    )
    return model.GroupVerdict(group=group.name, takes="yes", reasons=[*reasons, *await _members(port, group)])


async def _members(port: DurablePort, group: ConsumerGroup) -> list[str]:
    """Which member gets it."""
    if group.paused:
        return ["The group is paused: the record waits."]
    try:
        status = await port.groups.status(group.id)
    except FlockError:
        return ["The leaders of its partitions do not say which members there are."]
    names = sorted({holder.member for one in status for holder in one.holders})
    if not names:
        return ["No member takes part now: the record waits."]
    shown = ", ".join(names[:MEMBERS_SHOWN]) + (", ..." if len(names) > MEMBERS_SHOWN else "")
    which = {KEY: "the one that has its key", STREAM: "the one that has its partition"}.get(
        group.mode, "the first that has room"
    )
    return [f"One of {counted(len(names), 'member')} gets it, {which}: {shown}."]
