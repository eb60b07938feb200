"""The operations on durable topics and their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from flockmq.admin import durable_model as model
from flockmq.admin.durable_common import change, durable, find_group, find_topic
from flockmq.admin.durable_views import node_name, partition_view, topic_view
from flockmq.admin.handlers import page
from flockmq.cluster.commands import AlterTopic, CreateTopic, DeleteTopic
from flockmq.cluster.model import ACK_NAMES, BY_CLIENT, BY_PROPERTY, BY_TOPIC, TopicRecord, is_hidden
from flockmq.errors import NOT_FOUND, ApiError

if TYPE_CHECKING:
    from flockmq.admin.desk import Desk
    from flockmq.admin.durable_port import DurablePort
    from flockmq.admin.durable_tenants_model import PartitionPage, ScrubQuery, TopicPage
    from flockmq.admin.model import Page
    from flockmq.admin.operations import Call, NoQuery
    from flockmq.admin.paging import Entries
    from flockmq.cluster.state import ClusterState


def list_topics(desk: Desk, call: Call[TopicPage, None]) -> Page[model.DataTopic]:
    """A page of topics."""
    query = call.query
    state = durable(desk).state()
    cores = len(state.alive_cores())

    def walk() -> Entries[model.DataTopic]:
        for topic in list(state.topics.values()):
            is_wanted = query.namespace in (None, topic.namespace) and (query.with_hidden or not is_hidden(topic.name))
            yield topic_view(topic, cores) if is_wanted else None

    return page(desk, "topics", call, walk)


async def create_topic(desk: Desk, call: Call[NoQuery, model.TopicRequest]) -> model.DataTopic:
    """Declare a topic."""
    asked = call.body
    key, key_property = _key(asked.key)
    made = await change(
        desk,
        CreateTopic(
            name=asked.name,
            namespace=asked.namespace,
            filters=tuple(asked.filters),
            shards=asked.shards,
            replication_factor=asked.replication_factor,
            retention_ms=asked.retention_ms or 0,
            retention_bytes=asked.retention_bytes or 0,
            ack=ACK_NAMES.index(asked.ack),
            key=key,
            key_property=key_property,
            exchange=asked.exchange,
        ),
    )
    return _made(desk, made, asked.namespace, asked.name)


def get_topic(desk: Desk, call: Call[model.TopicQuery, None]) -> model.DataTopic:
    """One topic."""
    port = durable(desk)
    return topic_view(_asked_for(port, call), len(port.state().alive_cores()))


async def alter_topic(desk: Desk, call: Call[model.InNamespace, model.TopicChange]) -> model.DataTopic:
    """Change a topic."""
    asked = call.body
    fields: dict[str, Any] = {}
    if asked.filters is not UNSET:
        fields["filters"] = tuple(asked.filters)
    for name in ("shards", "replication_factor", "exchange"):
        if getattr(asked, name) is not UNSET:
            fields[name] = getattr(asked, name)
    for name in ("retention_ms", "retention_bytes"):
        if getattr(asked, name) is not UNSET:
            fields[name] = getattr(asked, name) or 0
    if asked.ack is not UNSET:
        fields["ack"] = ACK_NAMES.index(asked.ack)
    if asked.key is not UNSET:
        fields["key"], fields["key_property"] = _key(asked.key)
    name, namespace = call.path["name"], call.query.namespace
    return _made(desk, await change(desk, AlterTopic(name, namespace, **fields)), namespace, name)


async def delete_topic(desk: Desk, call: Call[model.InNamespace, None]) -> None:
    """Delete a topic and its records."""
    await change(desk, DeleteTopic(call.path["name"], call.query.namespace))


async def list_topic_partitions(desk: Desk, call: Call[model.TopicQuery, None]) -> list[model.Partition]:
    """The partitions of a topic."""
    port = durable(desk)
    topic = _asked_for(port, call)
    told = await durable(desk).replicas([one.group for one in topic.partitions])
    nodes = port.state().nodes
    return [partition_view(topic, one, told.get(one.group, ()), nodes) for one in topic.partitions]


async def list_partitions(desk: Desk, call: Call[PartitionPage, None]) -> Page[model.Partition]:
    """A page of all partitions."""
    query = call.query
    state = durable(desk).state()
    told = await durable(desk).replicas(None) if query.after is None else {}

    def walk() -> Entries[model.Partition]:
        for topic in _topics(state, query.namespace, query.topic):
            if is_hidden(topic.name) and not (query.with_hidden or query.unhealthy):
                continue
            for partition in topic.partitions:
                found = partition_view(topic, partition, told.get(partition.group, ()), state.nodes)
                yield None if query.unhealthy and found.healthy else found

    return page(desk, "partitions", call, walk)


async def get_partition(desk: Desk, call: Call[NoQuery, None]) -> model.Partition:
    """One partition, by its group."""
    port = durable(desk)
    group, topic = find_group(port, call.path["group"])
    told = await durable(desk).replicas([group])
    return partition_view(topic, port.state().partition(group), told.get(group, ()), port.state().nodes)


async def start_scrub(desk: Desk, call: Call[ScrubQuery, None]) -> model.Scrub:
    """Read and verify replicas now."""
    port = durable(desk)
    state = port.state()
    topics = _topics(state, call.query.namespace, call.query.topic)
    if call.query.topic is not None and not topics:
        raise ApiError(NOT_FOUND, f"There is no topic {call.query.topic!r}; list them to see which there are")
    replicas, silent = await port.scrub([one.group for topic in topics for one in topic.partitions])
    return model.Scrub(replicas=replicas, silent=sorted(node_name(state.nodes, node) for node in silent))


def _asked_for(port: DurablePort, call: Call[model.TopicQuery, None]) -> TopicRecord:
    query = call.query
    return find_topic(port, query.namespace, call.path["name"], with_hidden=query.with_hidden)


def _topics(state: ClusterState, namespace: str | None, name: str | None) -> list[TopicRecord]:
    return [
        topic for topic in state.topics.values() if namespace in (None, topic.namespace) and name in (None, topic.name)
    ]


def _key(text: str) -> tuple[int, str]:
    if text == "topic":
        return BY_TOPIC, ""
    return (BY_CLIENT, "") if text == "client" else (BY_PROPERTY, text)


def _made(desk: Desk, made: object, namespace: str, name: str) -> model.DataTopic:
    """What came of a command: with its answer, or, when it was done at another node, from the state known here."""
    port = durable(desk)
    record = made if isinstance(made, TopicRecord) else find_topic(port, namespace, name, with_hidden=True)
    return topic_view(record, len(port.state().alive_cores()))
