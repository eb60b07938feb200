"""Consumer groups as the API shows them: from cluster state and from what the leaders of partitions tell."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from flockmq.admin import durable_groups_model as model
from flockmq.admin.durable_views import node_name
from flockmq.admin.model import UserProperty
from flockmq.admin.moments import rfc3339
from flockmq.cluster.bindings import binding_text
from flockmq.cluster.filters import namespace_prefix
from flockmq.cluster.groups import NO_DEAD_LETTERS
from flockmq.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.cluster.state import ClusterState
    from flockmq.durable.groups.port import Fetched, PartitionStatus


def group_view(group: ConsumerGroup, lag: model.GroupLag | None = None) -> model.GroupInfo:
    """A group as cluster state has it."""
    return model.GroupInfo(
        namespace=group.namespace,
        name=group.name,
        id=group.id,
        bindings=[
            model.BoundTopic(topic=one.topic, type=one.type, key=one.key, text=binding_text(one))
            for one in group.bindings
        ],
        mode=group.mode,  # type: ignore[arg-type]  # checked when it was made
        ack_wait_ms=group.ack_wait_ms,
        max_deliver=group.max_deliver,
        backoff_ms=group.backoff_ms,
        backoff_max_ms=group.backoff_max_ms,
        max_in_flight=group.max_in_flight,
        dead_letter=None if group.dead_letter == NO_DEAD_LETTERS else group.dead_letter,
        start=group.start,
        hold=group.hold,
        paused=group.paused,
        generation=group.generation,
        reset_to=group.reset_to,
        made_by_share=group.made_by_share,
        linger_ms=group.linger_ms,
        created_at=rfc3339(group.created_ms),
        lag=lag,
    )


def details_view(
    state: ClusterState, group: ConsumerGroup, status: Sequence[PartitionStatus], now_ms: int
) -> model.GroupDetails:
    """A group, its partitions and its members."""
    info = group_view(group, lag_view(status, now_ms))
    fields = {name: getattr(info, name) for name in info.__struct_fields__}
    return model.GroupDetails(
        **fields,
        partitions=[_partition(state, one, now_ms) for one in status],
        members=_members(state, status),
    )


def lag_view(status: Sequence[PartitionStatus], now_ms: int) -> model.GroupLag:
    """How far a group is behind, all partitions together."""
    known = [one for one in status if one.leader]
    is_whole = len(known) == len(status)
    silent = [f"{one.topic_name}/{one.shard}" for one in status if not one.leader]
    problem = ""
    if silent:
        problem = (
            f"No leader of {counted(len(silent), 'partition')} answers, such as {silent[0]}; see `flockmq partition "
            "list --unhealthy`."
        )
    return model.GroupLag(
        messages=sum(one.lag for one in known) if is_whole else None,
        bytes=sum(one.lag_bytes for one in known) if is_whole else None,
        seconds=max([_age_s(one.oldest_ms, now_ms) for one in known], default=0.0) if is_whole else None,
        in_flight=sum(one.in_flight for one in known),
        dead=sum(one.dead for one in known),
        dropped=sum(one.dropped for one in known),
        redelivered=sum(one.redelivered for one in known),
        members=len({(holder.node_id, holder.member) for one in known for holder in one.holders}),
        problem=problem,
    )


def message_view(namespace: str, one: Fetched) -> model.GroupMessage:
    """A record for a member, or for a person that looks."""
    prefix = namespace_prefix(namespace)
    text, encoded = payload_parts(one.payload)
    return model.GroupMessage(
        token=one.token or None,
        topic=text_of(one.topic.removeprefix(prefix)),
        payload=text,
        payload_base64=encoded,
        deliveries=one.deliveries,
        durable_topic=one.topic_name,
        shard=one.shard,
        offset=one.offset,
        timestamp_at=rfc3339(one.timestamp_ms),
        client=text_of(one.client.removeprefix(prefix)),
        qos=one.qos,
        key=None if one.key is None else text_of(one.key),
        user_properties=properties_view(one.user_properties),
    )


def payload_parts(payload: bytes) -> tuple[str | None, str | None]:
    """A payload as text, or as base64 where it is not UTF-8."""
    try:
        return payload.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(payload).decode("ascii")


def properties_view(properties: Iterable[tuple[bytes, bytes]]) -> list[UserProperty]:
    """User properties as text."""
    return [UserProperty(text_of(name), text_of(value)) for name, value in properties]


def text_of(data: bytes) -> str:
    """Bytes that are UTF-8 unless a client broke MQTT's rule."""
    return data.decode("utf-8", "replace")


def _partition(state: ClusterState, one: PartitionStatus, now_ms: int) -> model.GroupPartition:
    view = model.GroupPartition(
        topic=one.topic_name,
        shard=one.shard,
        group=one.partition,
        leader=None,
        generation=None,
        floor=None,
        end_offset=None,
        lag=None,
        lag_bytes=None,
        lag_s=None,
        in_flight=None,
        dead=None,
        dropped=None,
        redelivered=None,
    )
    if not one.leader:
        return view
    return msgspec.structs.replace(
        view,
        leader=node_name(state.nodes, one.leader),
        generation=one.generation,
        floor=one.floor,
        end_offset=one.end,
        lag=one.lag,
        lag_bytes=one.lag_bytes,
        lag_s=_age_s(one.oldest_ms, now_ms),
        in_flight=one.in_flight,
        dead=one.dead,
        dropped=one.dropped,
        redelivered=one.redelivered,
    )


def _members(state: ClusterState, status: Sequence[PartitionStatus]) -> list[model.GroupMember]:
    held: dict[tuple[int, str], int] = {}
    waits: dict[tuple[int, str], int] = {}
    places: dict[tuple[int, str], list[str]] = {}
    for one in status:
        for holder in one.holders:
            key = (holder.node_id, holder.member)
            held[key] = held.get(key, 0) + holder.held
            # A member asks all partitions for as much as it can take altogether.
            waits[key] = max(waits.get(key, 0), holder.waits_for)
            some = places.setdefault(key, [])
            if holder.held:
                some.append(f"{one.topic_name}/{one.shard}")
    return [
        model.GroupMember(
            member=key[1], node=node_name(state.nodes, key[0]), held=held[key], waits_for=waits[key], shards=places[key]
        )
        for key in sorted(held, key=lambda key: (key[1], key[0]))
    ]


def _age_s(oldest_ms: int, now_ms: int) -> float:
    return round(max(now_ms - oldest_ms, 0) / 1_000, 3) if oldest_ms else 0.0
