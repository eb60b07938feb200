"""The records that the cluster agrees on. They are never changed: a change puts a new record in the place of the old.

```
 NodeRecord   Namespace --+-- ClientRecord, AclRecord     clients and their rights
                          +-- TopicRecord -- PartitionRecord...   one Raft group each
                          +-- CursorRecord                where a reader of a topic stands is kept by its partitions
                          `-- ConsumerGroup               see groups.py; the same holds for them
```
Texts are as people write them; only the filters of topics are kept in *internal form* (see ``filters.py``).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

DEFAULT_NAMESPACE: Final = "default"

CORE: Final = 0
EDGE: Final = 1
ROLE_NAMES: Final = ("core", "edge")

ALIVE: Final = 0
DEAD: Final = 1
LEFT: Final = 2
STATE_NAMES: Final = ("ALIVE", "DEAD", "LEFT")

QUORUM: Final = 0
LEADER: Final = 1
MEMORY: Final = 2
ACK_NAMES: Final = ("quorum", "leader", "memory")

BY_TOPIC: Final = 0
BY_CLIENT: Final = 1
BY_PROPERTY: Final = 2
KEY_NAMES: Final = ("topic", "client", "property")

BAN_KINDS: Final = ("client", "username", "address")

EXCHANGES: Final = ("fanout", "direct", "topic", "headers")
RETENTION_MS_DEFAULT: Final = 7 * 24 * 3_600_000

SESSIONS_TOPIC: Final = "$sessions"
"""The state of persistent sessions; its log holds control batches only."""
CAPTURE_TOPIC: Final = "$capture"
"""Messages that persistent sessions wait for and no declared topic keeps."""
HIDDEN_REPLICATION_FACTOR: Final = 3

Setting = str | int | bool


class NodeRecord(Struct, frozen=True, array_like=True):
    """A node that belongs to the cluster."""

    id: int
    name: str
    host: str
    port: int
    api: str = ""
    """Where its admin API answers, as a URL; empty when not known."""
    role: int = CORE
    state: int = ALIVE
    zone: str = ""
    version: str = ""
    since_ms: int = 0
    """Wall time of the last change of ``state``."""
    store: int = 0
    """The id of its store; 0 while the node has not told. Only a node with this very store may begin a log."""
    retired: tuple[int, ...] = ()
    """Stores that it had before, the latest ones. None of them may come back: others have gone on without it."""


class Limits(Struct, frozen=True, array_like=True):
    """What a namespace may use, all nodes together. 0 is no limit."""

    topics_max: int = 0
    clients_max: int = 0
    connections_max: int = 0
    sessions_max: int = 0
    retained_max: int = 0
    messages_per_second_max: int = 0
    stored_bytes_max: int = 0
    persistent_sessions_max: int = 0
    sessions_per_user_max: int = 0
    """Persistent sessions of one user."""
    captured_bytes_per_second_max: int = 0
    """Messages stored for persistent sessions."""


class Namespace(Struct, frozen=True, array_like=True):
    """A tenant."""

    name: str
    limits: Limits = Limits()
    created_ms: int = 0


class ClientRecord(Struct, frozen=True, array_like=True):
    """A registered identity. Filters are those of its own namespace, without any prefix."""

    namespace: str
    name: str
    secret: str = ""
    """What its password is checked with, as in a password file; empty when it can't log in with a password."""
    publish: tuple[str, ...] = ("#",)
    subscribe: tuple[str, ...] = ("#",)
    publish_deny: tuple[str, ...] = ()
    subscribe_deny: tuple[str, ...] = ()
    superuser: bool = False
    created_ms: int = 0
    changed_index: int = 0


class AclRule(Struct, frozen=True, array_like=True):
    """One rule, with the meaning that it has in an ACL file."""

    allow: bool
    who: tuple[str, ...]
    action: str
    topics: tuple[str, ...]


class AclRecord(Struct, frozen=True, array_like=True):
    """The rules of a namespace, in order."""

    namespace: str
    default_allow: bool
    rules: tuple[AclRule, ...]
    changed_index: int = 0


class PartitionRecord(Struct, frozen=True, array_like=True):
    """One shard of a topic and where it lives."""

    group: int
    """Its Raft group: handed out once and never used again."""
    shard: int
    replicas: tuple[int, ...]
    """The voters that its leader reported last."""
    target: tuple[int, ...]
    """The voters it should have. A move is under way when they are not the same nodes."""
    founders: tuple[int, ...]
    """Voters of ``first`` that never left and never lost their store. Only they may begin the group's log."""
    preferred: int
    """The node that should lead, one of ``target``."""
    first: tuple[int, ...]
    """The voters that the group began with: a replica that begins the log must begin with exactly these."""
    as_of: int = 0
    """Raft index of the configuration behind ``replicas``; a report of an older one is refused."""
    is_advised: bool = False
    """Advice placed it: evening out by number leaves it there."""
    heir: int = 0
    """An operator accepts what is lost: this node goes on alone with what it has, until it leads. 0: none."""

    @property
    def is_moving(self) -> bool:
        """Whether the voters are not yet the wanted ones."""
        return set(self.replicas) != set(self.target)

    def members(self) -> tuple[int, ...]:
        """Nodes that hold, or should begin to hold, a replica."""
        return (*self.replicas, *[node for node in self.target if node not in self.replicas])

    def voters_to_begin(self, node: int) -> tuple[int, ...] | None:
        """With which voters a node without a log may begin the group; None when it must wait to be filled."""
        return self.first if node in self.founders else None


class TopicRecord(Struct, frozen=True, array_like=True):
    """A durable topic."""

    namespace: str
    name: str
    filters: tuple[bytes, ...]
    """In internal form."""
    shards: int
    replication_factor: int
    retention_ms: int
    """0: not limited by age."""
    retention_bytes: int
    """Of each partition; 0: not limited by size."""
    ack: int
    key: int
    key_property: str
    exchange: str
    created_ms: int
    changed_index: int
    """Index of the command that last changed what publishers must know: filters, shards, ack or key."""
    partitions: tuple[PartitionRecord, ...]


class HiddenShape(Struct, frozen=True, array_like=True):
    """What is particular to a hidden topic; all else is the same for all of them."""

    shards: int
    """Never changed: a client id or a name must stay in its shard."""
    retention_ms: int
    """0: not limited by age."""
    retention_bytes: int
    """Of each partition."""


HIDDEN_TOPICS: Final[dict[str, HiddenShape]] = {
    SESSIONS_TOPIC: HiddenShape(4, 0, 64 * 1_048_576),
    CAPTURE_TOPIC: HiddenShape(8, RETENTION_MS_DEFAULT, 1_024 * 1_048_576),
}
"""Durable topics that the cluster makes for itself at first need, in the namespace ``default`` and without filters."""


def is_hidden(name: str) -> bool:
    """Whether a topic is the cluster's own. Users can't name a topic so: no name of theirs begins with ``$``."""
    return name in HIDDEN_TOPICS


class CursorRecord(Struct, frozen=True, array_like=True):
    """A named reader of a topic. Its positions are state of the topic's partitions."""

    namespace: str
    name: str
    topic: str
    hold: bool = False
    """Whether retention waits for it."""
    created_ms: int = 0
    created_index: int = 0
    """Index of the command that made the cursor; tells it from a deleted one of the same name."""

    @property
    def key(self) -> str:
        """How partitions call it."""
        return f"{self.namespace}/{self.name}#{self.created_index}"


class BanRecord(Struct, frozen=True, array_like=True):
    """A client id, a user name or an address that may not connect."""

    kind: str
    """One of ``BAN_KINDS``."""
    value: str
    reason: str = ""
    since_ms: int = 0
    """Wall time of the command."""
    until_ms: int = 0
    """Wall time of its end; 0: until it is lifted."""


class Versions(Struct, frozen=True, array_like=True):
    """Index of the last command that changed each section."""

    nodes: int = 0
    namespaces: int = 0
    clients: int = 0
    """Clients and ACLs."""
    topics: int = 0
    """Topics and where their partitions are."""
    cursors: int = 0
    settings: int = 0
    """Settings and the cluster id."""
    bans: int = 0
    groups: int = 0
    """Consumer groups."""
