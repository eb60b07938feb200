"""What the REST API says about durable topics: topics, partitions, records, positions. As in ``model``: names carry
units, what does not apply is null."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType, field

from flockmq.admin.cluster_model import NodeId
from flockmq.admin.model import MessageProperties, Moment, Request, Response, UserProperty, not_both
from flockmq.admin.rules import (
    ENDS_PATTERN,
    Base64Text,
    Copies,
    Count,
    DurableFilters,
    FilterText,
    NameText,
    Offset,
    Qos,
    Shards,
    ShortText,
    TimeText,
    TopicText,
)

RECORDS_PER_PUBLISH_MAX = 10_000
"""Most records in one bulk publish; the body's own limit is reached sooner when they are long."""
READ_BYTES_MAX = 8 * 1024 * 1024
READ_BYTES_DEFAULT = 1024 * 1024
RETENTION_MS_DEFAULT = 7 * 86_400_000
FILTERS_PER_READ_MAX = 64
WAIT_MS_MAX = 20_000
"""Longest long poll; below the time that a whole request may take."""

Ack = Literal["quorum", "leader", "memory"]
Exchange = Literal["fanout", "direct", "topic", "headers"]
KeyText = Annotated[str, Meta(min_length=1, max_length=128)]
ReplicaRole = Literal["leader", "follower", "learner", "unknown"]
NamespaceText = Annotated[NameText, Meta(description="Namespace; `default` without it")]
WithHidden = Annotated[bool, Meta(description="Also hidden topics, which the cluster made for itself")]


class InNamespace(Request, frozen=True):
    """Which namespace."""

    namespace: NamespaceText = "default"


class TopicQuery(InNamespace, frozen=True):
    """Which topic."""

    with_hidden: WithHidden = field(default=False, name="all")


class AcceptLossQuery(Request, frozen=True):
    """How far the loss goes."""

    without_absent: Annotated[bool, Meta(description="Go on though replicas that do not answer may have more")] = False


class DataTopic(Response, frozen=True):
    """A durable topic: what is published to a topic name that its filters match is kept in its partitions' logs."""

    namespace: str
    name: str
    filters: list[str]
    shards: Annotated[int, Meta(description="How many partitions it has")]
    replication_factor: Annotated[int, Meta(description="Copies wanted; there are fewer while there are fewer nodes")]
    copies_possible: Annotated[int, Meta(description="Copies that there can be with the core nodes that are alive")]
    retention_ms: Annotated[int | None, Meta(description="Records older than this are removed; null: no limit")]
    retention_bytes: Annotated[int | None, Meta(description="Newest bytes of a partition that stay; null: no limit")]
    ack: Annotated[Ack, Meta(description="When publishers get their acknowledgement")]
    key: Annotated[
        str, Meta(description="What decides the shard: `topic`, `client`, or the name of an MQTT 5 user property")
    ]
    exchange: Annotated[Exchange, Meta(description="Default exchange type of consumer groups")]
    created_at: Moment
    changed_index: Annotated[int, Meta(description="Index of cluster state at its last change")]
    groups: Annotated[list[int], Meta(description="Raft group of each shard, in their order")]
    hidden: Annotated[bool, Meta(description="The cluster made it for itself; users can't change or read it")] = False


class TopicRequest(Request, frozen=True):
    """A durable topic to create."""

    name: Annotated[NameText, Meta(description="Its name", examples=["plant"])]
    namespace: NamespaceText = "default"
    filters: Annotated[
        DurableFilters, Meta(description="Topic filters whose messages it keeps; `NAME/#` without any")
    ] = field(default_factory=list)
    shards: Shards = 1
    replication_factor: Copies = 3
    retention_ms: Annotated[Count | None, Meta(description="null: no limit by age")] = RETENTION_MS_DEFAULT
    retention_bytes: Annotated[Count | None, Meta(description="Of each partition; null: no limit by size")] = None
    ack: Ack = "quorum"
    key: Annotated[KeyText, Meta(description="`topic`, `client`, or the name of an MQTT 5 user property")] = "topic"
    exchange: Exchange = "fanout"


class TopicChange(Request, frozen=True):
    """What to change about a durable topic; what is not given stays as it is."""

    filters: Annotated[DurableFilters, Meta(min_length=1)] | UnsetType = UNSET
    shards: Annotated[Shards | UnsetType, Meta(description="More than before: shards are added, never taken away")] = (
        UNSET
    )
    replication_factor: Copies | UnsetType = UNSET
    retention_ms: Count | UnsetType | None = UNSET
    retention_bytes: Count | UnsetType | None = UNSET
    ack: Ack | UnsetType = UNSET
    key: Annotated[KeyText | UnsetType, Meta(description="Records of one key may be in two shards afterwards")] = UNSET
    exchange: Exchange | UnsetType = UNSET


class Replica(Response, frozen=True):
    """One copy of a partition."""

    node: Annotated[str, Meta(description="Name of the node that holds it")]
    id: NodeId
    api: Annotated[str | None, Meta(description="Where that node's API answers; records can be read there directly")]
    role: Annotated[ReplicaRole, Meta(description="`unknown`: the node does not answer")]
    end_offset: Annotated[int | None, Meta(description="End of what is committed there")]
    lag: Annotated[int | None, Meta(description="Records that it is behind the copy that is furthest")]
    damaged: Annotated[int, Meta(description="Batches that its files do not give back; others are asked")] = 0
    scrubbed_at: Annotated[
        str | None, Meta(description="When all of it had been read and verified; null: not since its node started")
    ] = None
    scrubbing: Annotated[bool, Meta(description="Whether an operator asked for that and it is not finished")] = False


class Scrub(Response, frozen=True):
    """What was begun."""

    replicas: Annotated[int, Meta(description="Copies of partitions that are read and verified now")]
    silent: Annotated[list[str], Meta(description="Nodes with copies that did not answer")]


class Partition(Response, frozen=True):
    """One shard of a topic: one Raft group, one log."""

    group: int
    namespace: str
    topic: str
    shard: int
    leader: Annotated[str | None, Meta(description="Node that takes appends; null while there is none")]
    preferred: Annotated[str | None, Meta(description="Node that should lead when all are well")]
    term: int | None
    first_offset: Annotated[int | None, Meta(description="Offset of the oldest record that is still there")]
    end_offset: Annotated[int | None, Meta(description="Offset that the next committed record gets")]
    bytes: Annotated[int | None, Meta(description="Size of the log on the leader's disk")]
    replicas: list[Replica]
    target: Annotated[list[str], Meta(description="Nodes that should hold it in the end; empty when nothing moves")]
    healthy: bool
    problem: Annotated[str, Meta(description="Why it is not healthy; empty when it is")]


class Head(Response, frozen=True):
    """How far a partition reaches."""

    shard: int
    group: int
    first_offset: int
    end_offset: Annotated[int, Meta(description="Offset that the next committed record gets")]


class Heads(Response, frozen=True):
    """How far the partitions of a topic reach."""

    heads: list[Head]
    after: Annotated[str, Meta(description="Give this as `after` to wait for more than this")]


class HeadsQuery(InNamespace, frozen=True):
    """What to wait for."""

    after: Annotated[
        Annotated[str, Meta(max_length=24_000, extra_json_schema={"pattern": ENDS_PATTERN})] | None,
        Meta(description="End offsets by shard, with commas: answer once one of them is passed"),
    ] = None
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX, description="How long to wait for that")] = 0


class OffsetsQuery(InNamespace, frozen=True):
    """Where to start."""

    time: Annotated[
        TimeText | None,
        Meta(
            description="ISO 8601 (UTC without a zone), or milliseconds since 1970; without it: the oldest records",
            examples=["1772366400000"],
        ),
    ] = None


class Offsets(Response, frozen=True):
    """For each shard the first offset whose record came at that time or later."""

    offsets: list[int]


class ReadQuery(InNamespace, frozen=True):
    """Which records. Without `offset` and `time`: from the oldest on."""

    offset: Annotated[Offset | None, Meta(description="First offset wanted")] = None
    time: Annotated[
        TimeText | None,
        Meta(description="Instead of an offset: ISO 8601 (UTC without a zone), or ms since 1970"),
    ] = None
    max_bytes: Annotated[
        int, Meta(ge=1, le=READ_BYTES_MAX, description="Most bytes of batches; one batch comes in any case")
    ] = READ_BYTES_DEFAULT
    wait_ms: Annotated[
        int, Meta(ge=0, le=WAIT_MS_MAX, description="How long to wait when there is nothing at that offset yet")
    ] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000, description="Most records, where the answer is JSON")] = 1_000
    filter: Annotated[
        list[FilterText],
        Meta(
            max_length=FILTERS_PER_READ_MAX,
            description="Topic filter, may be given several times: batches without a topic name that one of them "
            "matches are left out, and in JSON records",
        ),
    ] = field(default_factory=list)


class LogRecord(Response, frozen=True):
    """One record. ``payload`` is null when it is not UTF-8, ``payload_base64`` when it is."""

    offset: int
    timestamp_at: Moment
    topic: str
    client: str
    qos: Qos
    retain: bool
    key: str | None
    payload: str | None
    payload_base64: Base64Text | None
    user_properties: list[UserProperty]


class Records(Response, frozen=True):
    """A part of a partition's log."""

    first_offset: Annotated[int, Meta(description="Offset of the oldest record that is still there")]
    end_offset: Annotated[int, Meta(description="End of what was committed when this was read")]
    next_offset: Annotated[int, Meta(description="Where to read on")]
    records: list[LogRecord]


class RecordToPublish(Request, frozen=True):
    """A message for a durable topic. Give the payload as text or as base64, not both."""

    schema_rules: ClassVar[dict[str, Any]] = not_both("payload", "payload_base64")

    topic: Annotated[TopicText, Meta(description="Topic name, one that the durable topic's filters match")]
    payload: str | None = None
    payload_base64: Base64Text | None = None
    retain: bool = False
    properties: MessageProperties | None = None


class PublishRecords(Request, frozen=True):
    """Messages for one durable topic, in order."""

    records: Annotated[list[RecordToPublish], Meta(min_length=1, max_length=RECORDS_PER_PUBLISH_MAX)]
    client: Annotated[ShortText, Meta(description="Client id that the records are stored with")] = ""


class Placed(Response, frozen=True):
    """Where a record is."""

    shard: int
    offset: int


class Publication(Response, frozen=True):
    """Where the records are, in the order of the request; null for one that is certainly not in the log. Where none is
    there the answer is an error."""

    placed: list[Placed | None]
    refused: Annotated[int, Meta(description="How many are certainly not in the log")]
    reason: Annotated[str, Meta(description="Why; empty when none was refused")]
