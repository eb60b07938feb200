"""The operations on the logs of durable topics: reading, waiting for more, publishing.

```
 GET .../records   Accept: application/vnd.flockmq.batches --> batches as they are stored, offsets in headers
                   otherwise ----------------------------------> JSON for people
                   ``filter``: batches without a name that matches are left out; in JSON, records
 GET .../heads     answers at once, or once a partition has passed its offset in ``after``
 POST .../records  answers after commit: shard and offset of each record; an error when none was stored
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.admin import durable_model as model
from flockmq.admin.durable_common import (
    REPLICAS,
    durable,
    find_topic,
    group_of,
    owner_of,
    parse_moment,
)
from flockmq.admin.durable_port import Message
from flockmq.admin.durable_records import batch_views, records_of
from flockmq.admin.operations import Raw
from flockmq.admin.publishing import FIELD_BYTES_MAX, message_parts, utf8
from flockmq.cluster.filters import namespace_prefix
from flockmq.cluster.wanted_names import WantedNames
from flockmq.errors import (
    END_OFFSET,
    FIRST_OFFSET,
    INVALID_BODY,
    INVALID_PARAMETER,
    NEXT_OFFSET,
    REFUSED,
    UNAVAILABLE,
    ApiError,
    OffsetGone,
    RemoteProtocolError,
)
from flockmq.log.starts import LATEST, TIME, Start
from flockmq.mqtt.topics import check_topic_filter, check_topic_name

if TYPE_CHECKING:
    from flockmq.admin.desk import Desk
    from flockmq.admin.durable_port import Chunk, DurablePort
    from flockmq.admin.operations import Call
    from flockmq.cluster.model import TopicRecord
    from flockmq.cluster.state import ClusterState

BATCHES: Final = "application/vnd.flockmq.batches"


async def read_records(desk: Desk, call: Call[model.ReadQuery, None]) -> Raw | model.Records:
    """Committed records of a partition."""
    port = durable(desk)
    query = call.query
    topic = find_topic(port, query.namespace, call.path["name"])
    group = group_of(topic, call.path["shard"])
    if query.offset is not None and query.time is not None:
        raise ApiError(INVALID_PARAMETER, "`offset` and `time` are both given; give one of them")
    wanted = _wanted(topic, query.filter)
    with desk.polls.waits(query.wait_ms):
        offset, chunk = await _read(port, group, query, wanted)
    if BATCHES in call.accept:
        headers = {
            FIRST_OFFSET: str(chunk.first),
            END_OFFSET: str(chunk.end),
            NEXT_OFFSET: str(chunk.following),
            **_where(port.state(), topic, group),
        }
        return Raw(chunk.batches, BATCHES, headers=headers)
    return _for_people(topic, chunk, offset, query.limit, wanted)


def _wanted(topic: TopicRecord, filters: list[str]) -> WantedNames | None:
    """The filters of the names that a reader wants; None: all."""
    if not filters:
        return None
    valid: list[bytes] = []
    for text in filters:
        one = utf8(text, "filter", FIELD_BYTES_MAX)
        try:
            check_topic_filter(one)
        except RemoteProtocolError as error:
            raise ApiError(INVALID_PARAMETER, f"`filter` can't be {text[:80]!r}: {error}") from None
        valid.append(one)
    return WantedNames(valid, namespace_prefix(topic.namespace))


async def _read(port: DurablePort, group: int, query: model.ReadQuery, wanted: WantedNames | None) -> tuple[int, Chunk]:
    """From where on, and what is there."""
    offset = query.offset or 0
    if query.time is not None:
        [found] = await port.locate([group], Start(TIME, parse_moment(query.time, "`time`")))
        offset = found.offset
    try:
        return offset, await port.read(group, offset, query.max_bytes, query.wait_ms, wanted)
    except OffsetGone as gone:
        if query.offset is not None:
            raise
        return gone.first, await port.read(group, gone.first, query.max_bytes, query.wait_ms, wanted)


def _for_people(topic: TopicRecord, chunk: Chunk, offset: int, limit: int, wanted: WantedNames | None) -> model.Records:
    records = records_of(topic.namespace, batch_views(chunk.batches), offset, limit, wanted)
    following = records[-1].offset + 1 if len(records) == limit else chunk.following
    return model.Records(first_offset=chunk.first, end_offset=chunk.end, next_offset=following, records=records)


def _where(state: ClusterState, topic: TopicRecord, group: int) -> dict[str, str]:
    """The APIs of the nodes that hold replicas: a client that reads more goes there."""
    [partition] = [one for one in topic.partitions if one.group == group]
    nodes = [state.nodes[node] for node in partition.replicas if node in state.nodes]
    urls = [one.api for one in nodes if one.api]
    return {REPLICAS: ", ".join(urls)} if urls else {}


async def get_heads(desk: Desk, call: Call[model.HeadsQuery, None]) -> model.Heads:
    """How far the partitions reach."""
    port = durable(desk)
    query = call.query
    topic = find_topic(port, query.namespace, call.path["name"])
    groups = [one.group for one in topic.partitions]
    after = _offsets(query.after)[: len(groups)] if query.after is not None else []
    wait_ms = query.wait_ms if after else 0
    with desk.polls.waits(wait_ms):
        # A shard that was added meanwhile is news: its end is compared with 0.
        after += [0] * (len(groups) - len(after)) if after else []
        found = await port.locate(groups, Start(LATEST), after, wait_ms)
    heads = [
        model.Head(shard=shard, group=group, first_offset=one.first, end_offset=one.end)
        for shard, (group, one) in enumerate(zip(groups, found, strict=True))
    ]
    return model.Heads(heads=heads, after=",".join(str(one.end_offset) for one in heads))


def _offsets(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise ApiError(INVALID_PARAMETER, "`after` takes end offsets by shard with commas, as the last answer had them")
    return [int(part) for part in parts]


async def get_offsets(desk: Desk, call: Call[model.OffsetsQuery, None]) -> model.Offsets:
    """Where the records of a time begin."""
    port = durable(desk)
    topic = find_topic(port, call.query.namespace, call.path["name"])
    time_ms = 0 if call.query.time is None else parse_moment(call.query.time, "`time`")
    found = await port.locate([one.group for one in topic.partitions], Start(TIME, time_ms))
    return model.Offsets(offsets=[one.offset for one in found])


async def publish_records(desk: Desk, call: Call[model.InNamespace, model.PublishRecords]) -> model.Publication:
    """Append records; answered after commit."""
    port = durable(desk)
    state = port.state()
    topic = find_topic(port, call.query.namespace, call.path["name"])
    names: dict[str, bytes] = {}
    messages = [_message(state, topic, one, names) for one in call.body.records]
    client = utf8(call.body.client, "client", FIELD_BYTES_MAX)
    return await append(desk, topic, client, messages)


async def append(desk: Desk, topic: TopicRecord, client: bytes, messages: list[Message]) -> model.Publication:
    """Append messages and tell where they are."""
    outcomes = await durable(desk).publish(topic, client, messages)
    placed = [None if isinstance(one, str) else model.Placed(shard=one[0], offset=one[1]) for one in outcomes]
    reasons = [one for one in outcomes if isinstance(one, str)]
    if reasons and len(reasons) == len(outcomes):
        raise ApiError(UNAVAILABLE, f"None of the records was stored: {reasons[0]}", {"Retry-After": "1"})
    return model.Publication(placed=placed, refused=len(reasons), reason=reasons[0] if reasons else "")


def _message(state: ClusterState, topic: TopicRecord, asked: model.RecordToPublish, names: dict[str, bytes]) -> Message:
    internal = names.get(asked.topic)
    if internal is None:
        internal = names[asked.topic] = _checked(state, topic, asked.topic)
    payload, properties = message_parts(asked.payload, asked.payload_base64, asked.properties)
    return Message(internal, payload, asked.retain, properties)


def _checked(state: ClusterState, topic: TopicRecord, text: str) -> bytes:
    """A topic name in internal form, if it is one of this topic's."""
    name = utf8(text, "topic", FIELD_BYTES_MAX)
    try:
        check_topic_name(name)
    except RemoteProtocolError as error:
        raise ApiError(INVALID_BODY, f"`topic` can't be {text[:80]!r}: {error}") from None
    internal = namespace_prefix(topic.namespace) + name
    if owner_of(state, internal) is not topic:
        raise ApiError(
            REFUSED,
            f"{text[:80]!r} is no topic name of {topic.name!r}; its filters are "
            f"{', '.join(one.decode() for one in topic.filters[:8])}",
        )
    return internal
