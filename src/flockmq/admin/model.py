"""What the REST API takes and gives, as values: the one description that server, client and OpenAPI share.

Names carry their units (``uptime_s``, ``payload_bytes``); moments are RFC 3339 strings in UTC (``..._at``). A field
that does not apply is ``null``, never missing. Requests refuse unknown fields by name, so that a typing mistake is
an error and not a silent default. Nothing here imports the HTTP server: the command line loads this module, too.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from msgspec import Meta, Struct

from flockmq.admin import rules
from flockmq.admin.rules import Base64Text, FilterText, NameText, Qos, SharedFilterText, Text, TopicText
from flockmq.mqtt.namespaces import DEFAULT_NAMESPACE

PAGE_LIMIT_MAX = 1_000
"""Most entries in one page of a listing."""
PAGE_LIMIT_DEFAULT = 100
COUNT_MAX = (1 << 53) - 1
"""The largest number that every reader of JSON takes."""
DISCONNECTED_S_MAX = 0xFFFF_FFFF
NODES_CURSOR_PATTERN = r"^[ns][0-9a-f]{16}(\.0|-[A-Za-z0-9_-]+\.[0-9]{1,18})$"
"""Cursor of a listing of all nodes: the node to go on with, or the shard of ``$sessions``, and the cursor there."""
BAN_DURATION_S_MAX = 10 * 366 * 86_400
"""Longest ban with an end, ten years; without a duration a ban has none."""

T = TypeVar("T")

Build = Literal["compiled", "pure"]
BanKind = rules.BanKind
ProtocolVersion = Literal["3.1.1", "5.0"]
SessionState = Literal["connected", "disconnected", "away"]
Moment = Annotated[str, Meta(description="RFC 3339, UTC", examples=["2026-03-01T12:00:00.000Z"])]


def not_both(first: str, second: str) -> dict[str, Any]:
    """The rule that one of two texts may be given."""
    given = {"properties": {first: {"type": "string"}, second: {"type": "string"}}, "required": [first, second]}
    return {"not": given}


class Response(Struct, frozen=True, kw_only=True):
    """Base of what the API answers."""


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what the API takes: a mistyped field is refused by name."""

    schema_rules: ClassVar[dict[str, Any]] = {}
    """What its JSON Schema says about several fields together."""


# --- errors ---------------------------------------------------------------------------------------------------------


class ErrorDetail(Response, frozen=True):
    """``code`` is for programs and does not change; ``message`` is for people: what happened, why, what to do."""

    code: Annotated[str, Meta(examples=["not_found"])]
    message: str


class ErrorBody(Response, frozen=True):
    """The one shape of every answer that is not a success."""

    error: ErrorDetail


# --- listings -------------------------------------------------------------------------------------------------------


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """A part of a listing. While ``next`` is not null there may be more, also when ``items`` is short or empty."""

    items: list[T]
    next: Annotated[str | None, Meta(description="Give this as `after` to get the following page; null at the end")]


class NodesPage(Page[T], Generic[T], frozen=True, kw_only=True):
    """A part of a listing over all nodes."""

    unanswered: Annotated[
        list[str],
        Meta(
            description="Nodes whose entries are missing because they did not answer, by name; `$sessions/0`: sessions "
            "that no node has, of this shard"
        ),
    ] = []


class PageQuery(Request, frozen=True):
    """Which part of a listing."""

    after: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": r"^[A-Za-z0-9_-]+\.[0-9]{1,18}$"})] | None,
        Meta(description="`next` of the page before; leave out for the first page"),
    ] = None
    limit: Annotated[
        int, Meta(ge=1, le=PAGE_LIMIT_MAX, description=f"Most items in this page, up to {PAGE_LIMIT_MAX}")
    ] = PAGE_LIMIT_DEFAULT


class NodesPageQuery(PageQuery, frozen=True):
    """Which part of a listing of all nodes."""

    after: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": NODES_CURSOR_PATTERN})] | None,
        Meta(description="`next` of the page before; leave out for the first page"),
    ] = None


class ConnectionQuery(NodesPageQuery, frozen=True):
    """Which connections."""

    client_id: Annotated[str | None, Meta(description="Only client ids that begin with this")] = None
    namespace: Annotated[str | None, Meta(description="Only clients of this namespace")] = None
    username: Annotated[str | None, Meta(description="Only this user name, exactly")] = None
    peer: Annotated[str | None, Meta(description="Only clients at this address, without port")] = None
    node: Annotated[str | None, Meta(description="Only what this node has, by its name; else all nodes")] = None


class SessionQuery(NodesPageQuery, frozen=True):
    """Which sessions."""

    client_id: Annotated[str | None, Meta(description="Only client ids that begin with this")] = None
    namespace: Annotated[str | None, Meta(description="Only sessions of this namespace")] = None
    username: Annotated[str | None, Meta(description="Only sessions of this user name, exactly")] = None
    connected: Annotated[bool | None, Meta(description="Only sessions whose client is (not) connected now")] = None
    lag_min: Annotated[
        Annotated[int, Meta(ge=1, le=COUNT_MAX)] | None,
        Meta(description="Only sessions with at least this `lag`; those whose lag is not known are listed, too"),
    ] = None
    disconnected_s_min: Annotated[
        Annotated[int, Meta(ge=1, le=DISCONNECTED_S_MAX)] | None,
        Meta(description="Only sessions whose client has been away for so many seconds"),
    ] = None
    node: Annotated[str | None, Meta(description="Only what this node has, by its name; else all nodes")] = None


class ClientQuery(Request, frozen=True):
    """Whose client id it is."""

    namespace: Annotated[str, Meta(description="The client's namespace")] = DEFAULT_NAMESPACE


class FindQuery(ClientQuery, frozen=True):
    """Whose client id it is, and where to look."""

    node: Annotated[str | None, Meta(description="Look on this node only, by its name; else on all")] = None


class SessionSubscriptionQuery(PageQuery, frozen=True):
    """Which part of a listing, and whose client id it is."""

    namespace: Annotated[str, Meta(description="The client's namespace")] = DEFAULT_NAMESPACE


class SubscriptionQuery(NodesPageQuery, frozen=True):
    """Which subscriptions."""

    client_id: Annotated[str | None, Meta(description="Only subscriptions of this client id, exactly")] = None
    namespace: Annotated[
        str | None,
        Meta(description="Only subscriptions in this namespace; with `client_id`, `filter` or `match`: `default`"),
    ] = None
    filter: Annotated[
        SharedFilterText | None,
        Meta(description="Only this topic filter, exactly as subscribed (with `$share/group/`)"),
    ] = None
    match: Annotated[
        TopicText | None, Meta(description="Only subscriptions that a message to this topic name would reach")
    ] = None
    node: Annotated[str | None, Meta(description="Only what this node has, by its name; else all nodes")] = None


class RetainedQuery(PageQuery, frozen=True):
    """Which retained messages."""

    filter: Annotated[
        FilterText | None, Meta(description="Only topics that this filter matches, e.g. `plant/+/temp`")
    ] = None


class BanQuery(PageQuery, frozen=True):
    """Which bans."""

    kind: Annotated[BanKind | None, Meta(description="Only bans of this kind")] = None


# --- node -----------------------------------------------------------------------------------------------------------


class Listener(Response, frozen=True):
    """One socket that takes clients."""

    name: str
    protocol: Annotated[str, Meta(examples=["tcp", "tls", "ws", "wss"])]
    host: str
    port: int
    connections: Annotated[int | None, Meta(description="Open now; null where the listener does not count")] = None


class Node(Response, frozen=True):
    """The node that answers."""

    name: Annotated[str, Meta(examples=["n1@127.0.0.1"])]
    version: str
    build: Annotated[Build, Meta(description="Whether the hot modules run compiled or as plain Python")]
    state: Annotated[Literal["starting", "ready", "stopping"], Meta(description="As `/health/ready` sees it")]
    started_at: Moment
    uptime_s: float
    listeners: list[Listener]


class Stats(Response, frozen=True):
    """The numbers of `/metrics` by name: gauges (what is there now) and counters (since the node started)."""

    gauges: Annotated[dict[str, int | float], Meta(examples=[{"clients": 3, "sessions": 5}])]
    counters: Annotated[dict[str, int | float], Meta(examples=[{"messages_received_qos1": 42}])]


# --- clients --------------------------------------------------------------------------------------------------------


class Connection(Response, frozen=True):
    """A client that is connected now."""

    client_id: str
    namespace: str
    username: str | None
    peer: Annotated[str, Meta(description="Address of the client, without port")]
    listener: str
    protocol_version: ProtocolVersion
    keep_alive_s: int
    connected_at: Moment
    subscriptions: int
    messages_in: int
    messages_out: int
    messages_dropped: Annotated[int, Meta(description="QoS 0 messages dropped because the client reads too slowly")]
    bytes_in: int
    bytes_out: int
    node: Annotated[str, Meta(description="Name of the node that has it")] = ""


class Session(Response, frozen=True):
    """What the broker remembers of a client id, connected or not. Of an `away` session the cluster has the record
    alone: `lag` says how much may wait for it in logs."""

    client_id: str
    namespace: str
    username: str | None
    connected: bool
    protocol_version: ProtocolVersion
    created_at: Annotated[Moment | None, Meta(description="When this node got to know it; null while it is `away`")]
    disconnected_at: Annotated[
        Moment | None, Meta(description="When its client left; null while it is connected, or its node has just died")
    ]
    expiry_s: Annotated[
        int, Meta(description="Life after its client left; 0: ends with the connection; 4294967295: no end")
    ]
    subscriptions: int
    queued_messages: Annotated[int | None, Meta(description="QoS 1 and 2 messages that wait to be sent")]
    queued_bytes: int | None
    inflight_messages: Annotated[int | None, Meta(description="QoS 1 and 2 messages sent and not yet acknowledged")]
    messages_dropped: Annotated[int | None, Meta(description="QoS 1 and 2 messages dropped because the queue was full")]
    state: Annotated[
        SessionState,
        Meta(description="`disconnected`: a node keeps it for its client; `away`: only its record is left, in the log"),
    ]
    node: Annotated[
        str, Meta(description="Name of the node that has it; while it is `away`, of the node that had it last")
    ] = ""
    lag: Annotated[
        int | None,
        Meta(
            description="Most messages that wait for it in logs: offsets between where it stands and the end of each "
            "log that it reads, messages for others included; null where a log could not be asked"
        ),
    ] = 0
    gap: Annotated[
        int | None,
        Meta(description="Offsets from where it stands on that retention has removed already; null as for `lag`"),
    ] = 0


class Subscription(Response, frozen=True):
    """One subscription of one session."""

    client_id: str
    namespace: str
    filter: Annotated[str, Meta(description="As subscribed, with `$share/group/` where it is shared")]
    share_group: str | None
    qos: Qos
    no_local: bool
    retain_as_published: bool
    retain_handling: Annotated[int, Meta(ge=0, le=2)]
    identifier: Annotated[int | None, Meta(description="MQTT 5 subscription identifier")]
    node: Annotated[
        str, Meta(description="Name of the node that has it; while its session is `away`, of the node that had it last")
    ] = ""
    away: Annotated[bool, Meta(description="Whether its session is `away`: only its record is left, in the log")] = (
        False
    )


# --- messages -------------------------------------------------------------------------------------------------------


class UserProperty(Struct, frozen=True):
    """A name and a value; names may repeat and their order is kept."""

    name: Text
    value: Text


class MessageProperties(Request, frozen=True):
    """MQTT 5 properties of a message."""

    payload_is_utf8: Annotated[bool, Meta(description="Payload Format Indicator")] = False
    message_expiry_s: Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)] | None = None
    content_type: Text | None = None
    response_topic: TopicText | None = None
    correlation_data_base64: Base64Text | None = None
    user_properties: list[UserProperty] = []


class Retained(Response, frozen=True):
    """A retained message, without its payload."""

    topic: str
    qos: Qos
    payload_bytes: int
    stored_at: Moment | None
    expires_at: Moment | None


class RetainedMessage(Retained, frozen=True):
    """A retained message. ``payload`` is null when it is not UTF-8; ``payload_base64`` always holds it."""

    payload: str | None
    payload_base64: str
    properties: MessageProperties


class PublishRequest(Request, frozen=True):
    """A message to publish. Give the payload as text or as base64, not both; neither means an empty payload."""

    schema_rules: ClassVar[dict[str, Any]] = not_both("payload", "payload_base64")

    topic: Annotated[TopicText, Meta(description="Topic name, without wildcards", examples=["plant/1/temp"])]
    payload: Annotated[str | None, Meta(description="Payload as text, sent as UTF-8")] = None
    payload_base64: Annotated[Base64Text | None, Meta(description="Payload as base64")] = None
    qos: Qos = 0
    retain: bool = False
    properties: MessageProperties | None = None
    namespace: Annotated[NameText, Meta(description="Whose topic it is")] = DEFAULT_NAMESPACE


class PublishResult(Response, frozen=True):
    """What became of a publish."""

    matched: Annotated[int, Meta(description="Receivers on this node: clients, and shared groups counted once")]
    retained: Annotated[bool, Meta(description="Whether the message is now the retained one of its topic")]
    durable_topic: Annotated[
        str | None, Meta(description="The durable topic that keeps it, after commit; null when none does")
    ] = None
    shard: Annotated[int | None, Meta(description="Where in the durable topic it is")] = None
    offset: int | None = None


# --- operations -----------------------------------------------------------------------------------------------------


class BanRequest(Request, frozen=True):
    """Which clients may not connect, and for how long. Connected clients that the ban hits are disconnected."""

    schema_rules: ClassVar[dict[str, Any]] = {
        "if": {"properties": {"kind": {"const": "address"}}},
        "then": {"properties": {"value": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}}},
    }

    kind: BanKind
    value: Annotated[str, Meta(min_length=1, max_length=1_024, description="Client id, user name or IP address")]
    duration_s: Annotated[
        Annotated[int, Meta(ge=1, le=BAN_DURATION_S_MAX)] | None,
        Meta(description="How long it holds; null: until it is removed"),
    ] = None
    reason: Annotated[str, Meta(max_length=256, description="For people; not sent to the client")] = ""


class Ban(Response, frozen=True):
    """A client id, user name or address that may not connect."""

    kind: BanKind
    value: str
    reason: str
    created_at: Moment
    expires_at: Annotated[Moment | None, Meta(description="null: until it is removed")]


class BanResult(Response, frozen=True):
    """The ban as it now holds on all nodes, and how many connected clients it disconnected there."""

    ban: Ban
    kicked: int


class ReloadResult(Response, frozen=True):
    """What was read again."""

    reloaded: Annotated[list[str], Meta(examples=[["passwords", "acl", "certificates"]])]


class Health(Response, frozen=True):
    """State of the node, for probes."""

    status: Literal["live"]


class Ability(Response, frozen=True):
    """Whether the node can do something, and why or why not."""

    ok: bool
    reason: Annotated[str, Meta(description="One sentence or two, for people")]


class Readiness(Response, frozen=True):
    """What the node can do now."""

    status: Literal["starting", "ready", "stopping"]
    clients: Annotated[Ability, Meta(description="Take clients")]
    cluster: Annotated[Ability, Meta(description="Follow a cluster in which a majority decides")]
    durable: Annotated[Ability, Meta(description="Take part in durable topics: as `cluster`, and the store works")]
    sessions: Annotated[Ability, Meta(description="Find and move sessions of all live nodes")]
    required: Annotated[list[str], Meta(description="What has to be ok for an answer with 200")]
    problems: Annotated[
        list[str],
        Meta(
            description="What does not work as it should while clients are served, by the name of its event in the log",
            examples=[["retained_not_saved"]],
        ),
    ] = []


class ReadyQuery(Request, frozen=True):
    """What a probe wants to know."""

    require: Annotated[
        str | None,
        Meta(
            description="What has to be ok, of `clients`, `cluster`, `durable` and `sessions`, separated by commas; "
            "else `clients,cluster,durable`, and with `cluster.enabled = false` `clients`",
            examples=["clients"],
            extra_json_schema={"pattern": "^(clients|cluster|durable|sessions)(,(clients|cluster|durable|sessions))*$"},
        ),
    ] = None
