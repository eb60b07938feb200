"""What the REST API says about cursors, namespaces, their clients and rules, and about moving partitions."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType, field

from flockmq.admin.durable_model import NamespaceText, WithHidden
from flockmq.admin.model import Moment, PageQuery, Request, Response, not_both
from flockmq.admin.rules import (
    ClientFilters,
    LimitsByName,
    NameText,
    Offset,
    RuleFilterText,
    Shard,
    StartText,
    WhoText,
)

Start = Annotated[
    StartText,
    Meta(
        description="`earliest`, `latest`, `offset:N` (one shard), `offset:SHARD=N,...`, or `time:` with ISO 8601 (UTC "
        "where it names no zone) or ms since 1970",
        examples=["earliest", "time:2026-03-01T12:00:00Z"],
    ),
]
Password = Annotated[str, Meta(max_length=1_024, extra_json_schema={"minLength": 1})]


class NamespacedPage(PageQuery, frozen=True):
    """A listing, of one namespace or of all."""

    namespace: Annotated[NamespaceText | None, Meta(description="Only what is in this namespace")] = None


class TopicPage(NamespacedPage, frozen=True):
    """Which topics."""

    with_hidden: WithHidden = field(default=False, name="all")


class PartitionPage(TopicPage, frozen=True):
    """Which partitions."""

    topic: Annotated[NameText | None, Meta(description="Only those of this topic")] = None
    unhealthy: Annotated[bool, Meta(description="Only those that are not healthy, also of hidden topics")] = False


class ScrubQuery(Request, frozen=True):
    """Which partitions to read and verify."""

    namespace: Annotated[NamespaceText | None, Meta(description="Only those in this namespace")] = None
    topic: Annotated[NameText | None, Meta(description="Only those of this topic")] = None


# --- cursors --------------------------------------------------------------------------------------------------------


class CursorPosition(Response, frozen=True):
    """Where a cursor stands in one partition."""

    shard: int
    offset: Annotated[
        int | None, Meta(description="Next offset to read; null when it was not put in this shard yet, or see `known`")
    ]
    end_offset: Annotated[int | None, Meta(description="End of what is committed; null when no node answers")]
    lag: Annotated[int | None, Meta(description="Records between the two that are still there; null: unknown")]
    lost: Annotated[
        int | None,
        Meta(description="Records from its position on that retention removed before it read them; null: unknown"),
    ]
    known: Annotated[bool, Meta(description="False: no leader answers, it may stand anywhere in this shard")] = True


class ReadCursor(Response, frozen=True):
    """A named, replicated position over the partitions of a topic."""

    namespace: str
    name: str
    topic: str
    hold: Annotated[bool, Meta(description="Whether retention waits for it")]
    created_at: Moment
    lag: Annotated[int | None, Meta(description="Of all partitions together; null when one of them is not known")]
    lost: Annotated[
        int | None,
        Meta(description="Of all partitions together: removed before it read them; null when one is not known"),
    ]
    positions: list[CursorPosition]
    problem: Annotated[str, Meta(description="Why something is not known; empty when all is")] = ""


class CursorRequest(Request, frozen=True):
    """A cursor to create. One that is there already stays where it stands; `start` is then for shards that were added
    since."""

    name: NameText
    topic: NameText
    namespace: NamespaceText = "default"
    hold: Annotated[
        bool | None,
        Meta(description="Let retention wait for it; null: not for a new one, and one that is there stays as it is"),
    ] = None
    start: Start = "earliest"


class CursorChange(Request, frozen=True):
    """Where to put a cursor. Shards that `offset:SHARD=N,...` does not name stay where they are."""

    to: Start
    shard: Annotated[Shard | None, Meta(description="Only in this partition; null: in all")] = None


class CommitPosition(Request, frozen=True):
    """How far a reader has come in one partition."""

    shard: Shard
    offset: Annotated[Offset, Meta(description="Next offset to read")]


class CursorCommit(Request, frozen=True):
    """How far a reader has come."""

    positions: Annotated[list[CommitPosition], Meta(min_length=1, max_length=1_024)]


# --- namespaces and clients -----------------------------------------------------------------------------------------


class NamespaceInfo(Response, frozen=True):
    """A tenant: a topic space, clients and sessions of its own."""

    name: str
    limits: dict[str, int]
    topics: Annotated[int, Meta(description="Durable topics in it")]
    clients: Annotated[int, Meta(description="Clients registered in it")]
    stored_bytes: Annotated[
        int | None,
        Meta(
            description="What its durable topics store, replicas counted once, about a second ago; null without a limit"
        ),
    ] = None


class NamespaceRequest(Request, frozen=True):
    """A namespace to create."""

    name: NameText
    limits: LimitsByName = field(default_factory=dict)


class NamespaceChange(Request, frozen=True):
    """Limits to change; those not named stay as they are."""

    limits: LimitsByName


class RegisteredClient(Response, frozen=True):
    """An identity that may connect to a namespace. Its secret is never shown."""

    namespace: str
    name: Annotated[str, Meta(description="User name; clients of other namespaces than `default` say `namespace/name`")]
    has_password: bool
    publish: Annotated[list[str], Meta(description="Topic filters that it may publish to")]
    subscribe: Annotated[list[str], Meta(description="Topic filters that it may subscribe to")]
    publish_deny: Annotated[list[str], Meta(description="Exceptions: topic filters that it may not publish to")]
    subscribe_deny: Annotated[list[str], Meta(description="Exceptions: topic filters that it may not subscribe to")]
    superuser: Annotated[bool, Meta(description="May publish and subscribe to everything in its namespace")]


class ClientRequest(Request, frozen=True):
    """A client to register."""

    schema_rules: ClassVar[dict[str, Any]] = not_both("password", "password_hash")

    name: NameText
    password: Annotated[Password | None, Meta(description="Kept as a hash only; null: none")] = None
    password_hash: Annotated[
        Password | None, Meta(description="In place of a password: what a password file has behind `NAME:`")
    ] = None
    publish: Annotated[ClientFilters | None, Meta(description="null: everything in its namespace")] = None
    subscribe: Annotated[ClientFilters | None, Meta(description="null: everything in its namespace")] = None
    publish_deny: ClientFilters = field(default_factory=list)
    subscribe_deny: ClientFilters = field(default_factory=list)
    superuser: bool = False


class ClientChange(Request, frozen=True):
    """What to change about a registered client; what is not given stays as it is."""

    password: Password | UnsetType | None = UNSET
    publish: ClientFilters | UnsetType = UNSET
    subscribe: ClientFilters | UnsetType = UNSET
    publish_deny: ClientFilters | UnsetType = UNSET
    subscribe_deny: ClientFilters | UnsetType = UNSET
    superuser: bool | UnsetType = UNSET


# --- rules -----------------------------------------------------------------------------------------------------------


Default = Annotated[Literal["allow", "deny"], Meta(description="What holds when no rule decides")]


class AccessRule(Request, frozen=True):
    """One rule, with the meaning that it has in an ACL file. Rules are asked in their order, the first decides."""

    allow: bool
    who: Annotated[
        list[WhoText],
        Meta(
            min_length=1,
            max_length=1_000,
            description="`all`, `user:NAME` (its name in this namespace), `client:ID`, `ip:ADDRESS` or `ip:NETWORK`",
        ),
    ]
    action: Literal["publish", "subscribe", "capture", "all"]
    topics: Annotated[
        list[RuleFilterText],
        Meta(min_length=1, max_length=1_000, description="Topic filters; `%c` and `%u` are filled in"),
    ]


class AccessRules(Response, frozen=True):
    """The rules of a namespace."""

    namespace: str
    default: Default
    rules: list[AccessRule]
    changed_index: Annotated[int, Meta(description="Index of cluster state at their last change")]


class AccessRequest(Request, frozen=True):
    """All rules of a namespace, in place of those before."""

    default: Default
    rules: Annotated[list[AccessRule], Meta(min_length=1, max_length=1_000)]


# --- the whole ------------------------------------------------------------------------------------------------------


class Move(Response, frozen=True):
    """A partition on its way."""

    group: int
    namespace: str
    topic: str
    shard: int
    replicas: Annotated[list[str], Meta(description="Nodes that hold it now")]
    target: Annotated[list[str], Meta(description="Nodes that shall hold it")]


class RebalanceQuery(Request, frozen=True):
    """How much at once."""

    moves_max: Annotated[int, Meta(ge=1, le=1_000, description="Most moves to begin with this request")] = 10


class Rebalance(Response, frozen=True):
    """How far partitions and leaders are from where they should be."""

    begun: Annotated[int, Meta(description="Moves that this request began")]
    remaining: Annotated[int | None, Meta(description="Moves that are needed and not begun; null where not counted")]
    moving: Annotated[list[Move], Meta(description="Partitions whose replicas change nodes; at most 100 are listed")]
    moves_left: int
    leaders_left: Annotated[int, Meta(description="Partitions that another node than the preferred one leads")]
    unknown: Annotated[int, Meta(description="Partitions of which no replica answers")]
    settled: Annotated[bool, Meta(description="Whether everything that was begun is done")]


class AdviceQuery(Request, frozen=True):
    """Whether to apply the advice or only show it."""

    dry_run: Annotated[bool, Meta(description="Only check it against how things are")] = False


class AdviceStep(Response, frozen=True):
    """What comes of one entry of an advice."""

    what: Annotated[Literal["copy", "leader"], Meta(description="What should be on another node")]
    namespace: str
    topic: str
    shard: int
    group: Annotated[int, Meta(description="Its Raft group; 0 where there is none")]
    from_node: Annotated[str, Meta(description="Where it should be until now")]
    to_node: str
    outcome: Annotated[
        Literal["move", "done", "refused"],
        Meta(description="`move`: it goes there, or would; `done`: it is there and stays; `refused`: see the reason"),
    ]
    reason: str
    why: Annotated[str, Meta(description="As the advice has it")]


class AdviceOutcome(Response, frozen=True):
    """What came of an advice."""

    dry_run: bool
    made_at: str
    moves: Annotated[int, Meta(description="Entries that change where something should be")]
    refused: Annotated[int, Meta(description="Entries that could not be followed")]
    steps: list[AdviceStep]
