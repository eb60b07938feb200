"""What a change of a topic means for the consumer groups that are bound to it.

```
 delete   refused while a group that a user made reads the topic or sends its dead letters there
 alter    refused when a binding without a type could not be kept under the new default exchange type
 all      groups that ``$share`` made are bound to the topics that their filter overlaps
          these, and readers of dead letters, go with the last topic that they are bound to
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from flockmq.cluster.bindings import check_binding
from flockmq.cluster.commands import CONFLICT, RefusedError
from flockmq.cluster.filters import filters_overlap, internal_filter
from flockmq.cluster.groups import NAMED, Binding, is_reader, share_filter
from flockmq.cluster.tables import key_of

if TYPE_CHECKING:
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.cluster.model import TopicRecord
    from flockmq.cluster.tables import Tables

NAMES_SHOWN: Final = 5


def refuse_bound(tables: Tables, topic: TopicRecord) -> None:
    """Refuse to delete a topic that consumer groups of users need."""
    groups = [one for one in _groups(tables, topic) if not one.made_by_share and not is_reader(one.name)]
    readers = [one.name for one in groups if topic.name in one.topics()]
    if readers:
        raise RefusedError(
            CONFLICT,
            f"The topic {topic.name} is read by {_named(readers)}; delete the group or alter its bindings first.",
        )
    senders = [one.name for one in groups if one.dead_letter == topic.name]
    if senders:
        raise RefusedError(
            CONFLICT,
            f"The topic {topic.name} takes dead letters of {_named(senders)}; delete the group or give it another "
            "topic for them first.",
        )


def check_bound(tables: Tables, topic: TopicRecord) -> None:
    """Refuse a default exchange type that the bindings without a type do not go with."""
    for group in _groups(tables, topic):
        for binding in group.bindings:
            if binding.topic == topic.name and not binding.type:
                try:
                    check_binding(binding, topic.exchange)
                except RefusedError as refusal:
                    raise RefusedError(
                        CONFLICT,
                        f"The consumer group {group.name} is bound to {topic.name} without a type, and could not be "
                        f"with {topic.exchange}: {refusal}",
                    ) from None


def bind_shares(tables: Tables, topic: TopicRecord) -> None:
    """Bind groups that ``$share`` made to a topic that is new or has other filters, or unbind them."""
    for group in _groups(tables, topic):
        if group.made_by_share:
            others = tuple([one for one in group.bindings if one.topic != topic.name])
            wanted = share_filter(group.name)
            is_bound = len(others) != len(group.bindings)
            if overlaps(topic, wanted):
                if not is_bound:
                    _rebind(tables, group, (*others, Binding(topic.name, NAMED, wanted)))
            elif is_bound:
                _rebind(tables, group, others)


def unbind(tables: Tables, topic: TopicRecord) -> None:
    """Unbind the groups that no user made from a topic that goes."""
    for group in _groups(tables, topic):
        if topic.name in group.topics():
            _rebind(tables, group, tuple([one for one in group.bindings if one.topic != topic.name]))


def overlaps(topic: TopicRecord, topic_filter: str) -> bool:
    """Whether the topic may have names that a filter (user form) matches."""
    internal = internal_filter(topic.namespace, topic_filter)
    return any(filters_overlap(internal, one) for one in topic.filters)


def _groups(tables: Tables, topic: TopicRecord) -> list[ConsumerGroup]:
    return [group for group in tables.groups.values() if group.namespace == topic.namespace]


def _named(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:NAMES_SHOWN])
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"the consumer group{'s' if len(names) > 1 else ''} {shown}{more}"


def _rebind(tables: Tables, group: ConsumerGroup, bindings: tuple[Binding, ...]) -> None:
    key = key_of(group.namespace, group.name)
    if bindings:
        tables.groups[key] = replace(group, bindings=bindings)
    else:
        del tables.groups[key]
    tables.versions = replace(tables.versions, groups=tables.index)
