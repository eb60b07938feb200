"""What the REST API says about consumer groups: what they read, where they stand, what members fetch and settle."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from flockmq.admin.durable_model import WAIT_MS_MAX, Exchange, InNamespace, NamespaceText
from flockmq.admin.durable_tenants_model import NamespacedPage, Start
from flockmq.admin.model import Moment, Request, Response, UserProperty
from flockmq.admin.rules import Base64Text, NameText, Qos, ShortText
from flockmq.cluster.bindings import BINDINGS_MAX
from flockmq.cluster.changes_groups import ACK_WAIT_MS_MIN, DELIVER_MAX, IN_FLIGHT_MAX
from flockmq.cluster.changes_groups import WAIT_MS_MAX as AGE_MS_MAX
from flockmq.cluster.checks import FILTER_BYTES_MAX

FETCH_MAX = 1_000
"""Most records of one fetch."""
TOKENS_MAX = 10_000
TOKEN_CHARACTERS_MAX = 512
PEEK_MAX = 1_000
REDRIVE_MAX = 1_000
"""Most dead letters that one request brings back or drops."""

Mode = Literal["share", "key", "stream"]
Milliseconds = Annotated[int, Meta(ge=0, le=AGE_MS_MAX)]
AckWait = Annotated[int, Meta(ge=ACK_WAIT_MS_MIN, le=AGE_MS_MAX)]
Deliveries = Annotated[int, Meta(ge=0, le=DELIVER_MAX)]
InFlight = Annotated[int, Meta(ge=1, le=IN_FLIGHT_MAX)]
Token = Annotated[str, Meta(min_length=1, max_length=TOKEN_CHARACTERS_MAX)]
Tokens = Annotated[list[Token], Meta(min_length=1, max_length=TOKENS_MAX)]
_GROUP_NAME = "Its name; members over MQTT subscribe to `$queue/NAME`"
_DEAD_LETTER = "Topic for dead letters: one that exists, or `NAME.dead`, which is made; `none` drops and counts them"


class GroupBinding(Request, frozen=True):
    """A topic that a group reads, and which of its records."""

    topic: Annotated[NameText, Meta(description="A durable topic of the namespace")]
    type: Annotated[
        Exchange | Literal[""], Meta(description="How records are selected; empty: the topic's default exchange type")
    ] = ""
    key: Annotated[
        Annotated[str, Meta(max_length=FILTER_BYTES_MAX)],
        Meta(
            description="`direct`: the routing key; `topic`: a filter over routing keys; `headers`: "
            "`all:NAME=VALUE,...` or `any:NAME=VALUE,...`"
        ),
    ] = ""


Bindings = Annotated[
    list[
        Annotated[
            Annotated[str, Meta(min_length=1, max_length=2 * FILTER_BYTES_MAX)] | GroupBinding,
            Meta(
                description="As text: `TOPIC`, `TOPIC:fanout`, `TOPIC:direct:KEY`, `TOPIC:topic:FILTER` or "
                "`TOPIC:headers:all:NAME=VALUE,...`",
                examples=["orders:topic:eu.*.created"],
            ),
        ]
    ],
    Meta(min_length=1, max_length=BINDINGS_MAX),
]


class GroupRequest(Request, frozen=True):
    """A consumer group to create."""

    name: Annotated[NameText, Meta(description=_GROUP_NAME, examples=["work"])]
    bindings: Annotated[Bindings, Meta(description="What it reads")]
    namespace: NamespaceText = "default"
    mode: Annotated[
        Mode,
        Meta(
            description="`share`: any member gets any record. `key`: records of one key go to one member at a time, in "
            "order. `stream`: a partition goes to one member"
        ),
    ] = "share"
    ack_wait_ms: Annotated[AckWait, Meta(description="A record that is held longer is delivered again")] = 30_000
    max_deliver: Annotated[
        Deliveries, Meta(description="After so many deliveries a record is a dead letter; 0: never")
    ] = 5
    backoff_ms: Annotated[
        Milliseconds, Meta(description="Wait after the first nack of a record; each further one doubles it")
    ] = 1_000
    backoff_max_ms: Annotated[Milliseconds, Meta(description="The longest such wait")] = 60_000
    max_in_flight: Annotated[InFlight, Meta(description="Records of one partition that members may hold")] = 1_000
    dead_letter: Annotated[NameText | None, Meta(description=f"{_DEAD_LETTER}; null: `NAME.dead`")] = None
    start: Annotated[Start, Meta(description="Where it begins")] = "latest"
    hold: Annotated[bool, Meta(description="Let retention wait for it, within the topic's bound")] = True
    paused: Annotated[bool, Meta(description="Begin without handing records out")] = False


class GroupChange(Request, frozen=True):
    """What to change about a group; what is not given stays as it is. The group stays where it stands."""

    bindings: Annotated[Bindings, Meta(description="All of them: they replace those that it has")] | UnsetType = UNSET
    mode: Mode | UnsetType = UNSET
    ack_wait_ms: AckWait | UnsetType = UNSET
    max_deliver: Deliveries | UnsetType = UNSET
    backoff_ms: Milliseconds | UnsetType = UNSET
    backoff_max_ms: Milliseconds | UnsetType = UNSET
    max_in_flight: InFlight | UnsetType = UNSET
    dead_letter: Annotated[NameText | UnsetType | None, Meta(description=f"{_DEAD_LETTER}; null: `NAME.dead`")] = UNSET
    hold: bool | UnsetType = UNSET
    paused: bool | UnsetType = UNSET


class GroupReset(Request, frozen=True):
    """Where a group begins anew."""

    to: Annotated[Start, Meta(description="Where the new generation begins")]


class GroupPage(NamespacedPage, frozen=True):
    """Which groups."""

    lag: Annotated[bool, Meta(description="Ask the leaders of all partitions for the lag of each group")] = False
    shared: Annotated[bool, Meta(description="Also groups that `$share` subscriptions made")] = True


class GroupMember(Response, frozen=True):
    """A client, or a program, that takes records of a group."""

    member: Annotated[str, Meta(description="Client id of MQTT, or the name that a fetcher gave")]
    node: Annotated[str, Meta(description="The node that it is connected to, or that it fetches from")]
    held: Annotated[int, Meta(description="Records that it holds: delivered, not settled")]
    waits_for: Annotated[int, Meta(description="Records that it would take now")]
    shards: Annotated[list[str], Meta(description="Where it holds some, as TOPIC/SHARD")]


class GroupPartition(Response, frozen=True):
    """Where a group stands in one partition. What only the leader knows is null when no leader answers."""

    topic: str
    shard: int
    group: Annotated[int, Meta(description="The Raft group of the partition")]
    leader: Annotated[str | None, Meta(description="The node that hands its records out; null: none answers")]
    generation: Annotated[int | None, Meta(description="0: the partition has not begun the group yet")]
    floor: Annotated[int | None, Meta(description="All selected records before this offset are settled")]
    end_offset: int | None
    lag: Annotated[int | None, Meta(description="Records that are not settled, at most: some may not be selected")]
    lag_bytes: Annotated[int | None, Meta(description="About how many bytes the log has from the floor on")]
    lag_s: Annotated[float | None, Meta(description="Age of the oldest record that is not settled; 0: there is none")]
    in_flight: Annotated[int | None, Meta(description="Records that are held, or wait to be delivered again")]
    dead: Annotated[int | None, Meta(description="Dead letters so far")]
    dropped: Annotated[int | None, Meta(description="Of these, those that no topic took")]
    redelivered: Annotated[int | None, Meta(description="Deliveries that failed: nacked, expired or lost")]


class GroupLag(Response, frozen=True):
    """How far a group is behind, all partitions together."""

    messages: Annotated[int | None, Meta(description="Records that are not settled; null: a partition is not known")]
    bytes: Annotated[int | None, Meta(description="About how many bytes these have")]
    seconds: Annotated[float | None, Meta(description="Age of the oldest record that is not settled")]
    in_flight: Annotated[int, Meta(description="Records that members hold, or that wait to be delivered again")]
    dead: Annotated[int, Meta(description="Dead letters so far")]
    dropped: int
    redelivered: int
    members: Annotated[int, Meta(description="How many take part now")]
    problem: Annotated[str, Meta(description="Why something is not known; empty when all is")] = ""


class BoundTopic(Response, frozen=True):
    """A binding."""

    topic: str
    type: Annotated[str, Meta(description="Empty: the topic's default exchange type")]
    key: str
    text: Annotated[str, Meta(description="The same as the command line takes it")]


class GroupInfo(Response, frozen=True):
    """A consumer group: a named reader that many members share."""

    namespace: str
    name: str
    id: Annotated[int, Meta(description="Never used again")]
    bindings: list[BoundTopic]
    mode: Mode
    ack_wait_ms: int
    max_deliver: int
    backoff_ms: int
    backoff_max_ms: int
    max_in_flight: int
    dead_letter: Annotated[str | None, Meta(description="Topic for dead letters; null: they are dropped and counted")]
    start: str
    hold: bool
    paused: bool
    generation: Annotated[int, Meta(description="Grows with each reset")]
    reset_to: Annotated[str, Meta(description="Where the present generation began")]
    made_by_share: Annotated[bool, Meta(description="A `$share` subscription made it")]
    linger_ms: Annotated[int, Meta(description="How long it outlives its last member, if `$share` made it")]
    created_at: Moment
    lag: Annotated[GroupLag | None, Meta(description="null: not asked for")] = None


class GroupDetails(GroupInfo, frozen=True, kw_only=True):
    """A consumer group and where it stands."""

    partitions: list[GroupPartition]
    members: list[GroupMember]


# --- what members do ------------------------------------------------------------------------------------------------


class FetchRequest(Request, frozen=True):
    """What a member takes, and what it has done."""

    max: Annotated[int, Meta(ge=1, le=FETCH_MAX, description="Most records")] = 10
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX, description="How long to wait when there is none")] = 0
    member: Annotated[
        ShortText, Meta(description="Name of the member: the same in all its requests, its own in modes key and stream")
    ] = "http"
    ack: Annotated[
        list[Token], Meta(max_length=TOKENS_MAX, description="Tokens of records that are done; acknowledged first")
    ] = field(default_factory=list)


class GroupMessage(Response, frozen=True):
    """A record handed out. ``payload`` is null when it is not UTF-8, ``payload_base64`` when it is."""

    token: Annotated[str | None, Meta(description="For /ack, /nack and /extend; null: it was only shown")]
    topic: Annotated[str, Meta(description="The topic name that it was published to")]
    payload: str | None
    payload_base64: Base64Text | None
    deliveries: Annotated[int, Meta(description="1: it is delivered for the first time")]
    durable_topic: str
    shard: int
    offset: int
    timestamp_at: Moment
    client: str
    qos: Qos
    key: str | None
    user_properties: list[UserProperty]


class RefusedToken(Response, frozen=True):
    """A token that changed nothing."""

    token: str
    reason: str
    retry: Annotated[bool, Meta(description="No leader answered: the same token may do in a moment")] = False


class Fetch(Response, frozen=True):
    """Records for a member."""

    messages: list[GroupMessage]
    refused: Annotated[list[RefusedToken], Meta(description="Tokens in `ack` that changed nothing")]


class Settled(Response, frozen=True):
    """What tokens changed. Where none changed anything the answer is an error."""

    done: int
    refused: list[RefusedToken]


class AckRequest(Request, frozen=True):
    """Records that are done."""

    tokens: Tokens


class NackRequest(Request, frozen=True):
    """Records that could not be worked on."""

    tokens: Tokens
    delay_ms: Annotated[
        Milliseconds | None, Meta(description="Wait before they are delivered again; null: the group's backoff")
    ] = None
    reason: Annotated[ShortText, Meta(description="Kept with a dead letter")] = ""
    dead: Annotated[bool, Meta(description="They are dead letters at once")] = False


class ExtendRequest(Request, frozen=True):
    """Records that take longer."""

    tokens: Tokens
    ms: Annotated[int, Meta(ge=1, le=AGE_MS_MAX, description="How much longer, from now on")]


class PeekQuery(InNamespace, frozen=True):
    """How many to show."""

    limit: Annotated[int, Meta(ge=1, le=PEEK_MAX, description="Most records")] = 10


class GroupMessages(Response, frozen=True):
    """The oldest records that are not settled."""

    messages: list[GroupMessage]


# --- dead letters ---------------------------------------------------------------------------------------------------


class DeadLetterInfo(Response, frozen=True):
    """A record that the group gave up. ``payload`` is null when it is not UTF-8, ``payload_base64`` when it is."""

    id: Annotated[str, Meta(description="SHARD:OFFSET in the topic for dead letters")]
    topic: Annotated[str, Meta(description="The topic name that it was published to")]
    reason: str
    deliveries: int
    member: Annotated[str, Meta(description="The member that had it last")]
    durable_topic: Annotated[str, Meta(description="The topic that it was in")]
    shard: int
    offset: int
    dead_at: Moment
    payload: str | None
    payload_base64: Base64Text | None
    client: str
    user_properties: Annotated[list[UserProperty], Meta(description="Those of its publisher")]


class DeadLetters(Response, frozen=True):
    """Dead letters that were neither redriven nor dropped, oldest first."""

    dead_letter: Annotated[str, Meta(description="The topic that keeps them")]
    items: list[DeadLetterInfo]
    total: Annotated[int | None, Meta(description="How many there are; null: not known")]


DeadId = Annotated[str, Meta(max_length=32, extra_json_schema={"pattern": "^[0-9]{1,9}:[0-9]{1,18}$"})]


class DeadSelection(Request, frozen=True):
    """Which dead letters."""

    ids: Annotated[list[DeadId], Meta(max_length=REDRIVE_MAX, description="These, as SHARD:OFFSET")] = field(
        default_factory=list
    )
    all: Annotated[bool, Meta(description=f"The oldest {REDRIVE_MAX:,}; ask again while `left` says so")] = False


class DeadOutcome(Response, frozen=True):
    """What became of dead letters."""

    done: int
    refused: list[RefusedToken]
    left: Annotated[bool, Meta(description="Whether there may be more")]
