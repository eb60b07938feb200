"""What can be asked of the cluster state, and how a command stands in the log of group 0.

```
 Command --encode_envelope(origin, boot, number, wall time)--> bytes in the log --> ClusterState.apply --> Result
```
The wall time comes with the command, because the state machine must not read a clock. ``(origin, boot, number)`` lets
the node that asked recognise its command when it is applied there. A command is an array that begins with its number:
fields are only ever added at the end, with a default. A command that this version does not know is refused.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from flockmq.cluster.commands_groups import AlterGroup, CreateGroup, DeleteGroup, ReadDead, ResetGroup, ShareGroup
from flockmq.cluster.groups import ConsumerGroup
from flockmq.cluster.model import (
    ALIVE,
    BY_TOPIC,
    CORE,
    DEFAULT_NAMESPACE,
    QUORUM,
    RETENTION_MS_DEFAULT,
    AclRecord,
    AclRule,
    BanRecord,
    ClientRecord,
    CursorRecord,
    Limits,
    Namespace,
    NodeRecord,
    PartitionRecord,
    Setting,
    TopicRecord,
)
from flockmq.errors import FlockError

COMMAND_BYTES_MAX: Final = 1_048_576


class SetClusterId(Struct, frozen=True, array_like=True, tag=1):
    """Said once, at bootstrap."""

    cluster_id: int


class NodeSeen(Struct, frozen=True, array_like=True, tag=2):
    """A node is alive, with these details."""

    id: int
    name: str
    host: str
    port: int
    api: str = ""
    role: int = CORE
    zone: str = ""
    version: str = ""
    store: int = 0
    """The id of its store; 0: not known."""


class NodeStateChanged(Struct, frozen=True, array_like=True, tag=3):
    """A node is ALIVE, DEAD or LEFT."""

    id: int
    state: int = ALIVE


class ForgetNode(Struct, frozen=True, array_like=True, tag=4):
    """A node is no member any more. RefusedError while it is alive, or a replica of anything."""

    id: int


class RemoveNode(Struct, frozen=True, array_like=True, tag=30):
    """An operator takes out a node that is not alive. RefusedError while it is, or when a partition depends on it."""

    id: int
    accept_data_loss: bool = False
    """Partitions that have no majority without it begin anew, empty."""


class ReplaceNode(Struct, frozen=True, array_like=True, tag=5):
    """All replicas of a node that is not alive go to another one (same name, new disk)."""

    old: int
    new: int


class CreateNamespace(Struct, frozen=True, array_like=True, tag=6):
    """A new tenant."""

    name: str
    limits: Limits = Limits()


class AlterNamespace(Struct, frozen=True, array_like=True, tag=7):
    """Other limits; those that are None stay."""

    name: str
    topics_max: int | None = None
    clients_max: int | None = None
    connections_max: int | None = None
    sessions_max: int | None = None
    retained_max: int | None = None
    messages_per_second_max: int | None = None
    stored_bytes_max: int | None = None
    persistent_sessions_max: int | None = None
    sessions_per_user_max: int | None = None
    captured_bytes_per_second_max: int | None = None


class DeleteNamespace(Struct, frozen=True, array_like=True, tag=8):
    """RefusedError while it has topics or clients."""

    name: str


class PutClient(Struct, frozen=True, array_like=True, tag=9):
    """Register a client or replace its record; what is None stays as it is (for a new client: the model's default)."""

    namespace: str
    name: str
    secret: str | None = None
    publish: tuple[str, ...] | None = None
    subscribe: tuple[str, ...] | None = None
    publish_deny: tuple[str, ...] | None = None
    subscribe_deny: tuple[str, ...] | None = None
    superuser: bool | None = None
    only_new: bool = False
    """Refuse when it exists."""


class DeleteClient(Struct, frozen=True, array_like=True, tag=10):
    """The client can't log in any more."""

    namespace: str
    name: str


class PutAcl(Struct, frozen=True, array_like=True, tag=11):
    """All rules of a namespace at once."""

    namespace: str
    default_allow: bool
    rules: tuple[AclRule, ...] = ()


class DeleteAcl(Struct, frozen=True, array_like=True, tag=12):
    """No rules for a namespace."""

    namespace: str


class SetSetting(Struct, frozen=True, array_like=True, tag=13):
    """A setting of the whole cluster."""

    name: str
    value: Setting


class DeleteSetting(Struct, frozen=True, array_like=True, tag=14):
    """Back to the default."""

    name: str


class CreateTopic(Struct, frozen=True, array_like=True, tag=15):
    """A new durable topic. Filters as people write them; none means ``NAME/#``."""

    name: str
    namespace: str = DEFAULT_NAMESPACE
    filters: tuple[str, ...] = ()
    shards: int = 1
    replication_factor: int = 3
    retention_ms: int = RETENTION_MS_DEFAULT
    retention_bytes: int = 0
    ack: int = QUORUM
    key: int = BY_TOPIC
    key_property: str = ""
    exchange: str = "fanout"


class AlterTopic(Struct, frozen=True, array_like=True, tag=16):
    """What is None stays. Shards can only be added."""

    name: str
    namespace: str = DEFAULT_NAMESPACE
    filters: tuple[str, ...] | None = None
    shards: int | None = None
    replication_factor: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    ack: int | None = None
    key: int | None = None
    key_property: str | None = None
    exchange: str | None = None


class DeleteTopic(Struct, frozen=True, array_like=True, tag=17):
    """The topic, its cursors and its logs."""

    name: str
    namespace: str = DEFAULT_NAMESPACE


class CreateHidden(Struct, frozen=True, array_like=True, tag=24):
    """One of the topics that the cluster makes for itself (``HIDDEN_TOPICS``). Creating one that exists is fine."""

    name: str


class CreateCursor(Struct, frozen=True, array_like=True, tag=18):
    """A named reader. Creating one that exists, with the same topic, is fine; ``hold`` becomes what is said, and stays
    as it is when nothing is said: a reader that only makes sure of its cursor must not take an operator's hold away."""

    name: str
    topic: str
    namespace: str = DEFAULT_NAMESPACE
    hold: bool | None = None


class DeleteCursor(Struct, frozen=True, array_like=True, tag=19):
    """The reader will not come back."""

    name: str
    namespace: str = DEFAULT_NAMESPACE


class SetTarget(Struct, frozen=True, array_like=True, tag=20):
    """Where a partition should live, and its preferred leader (0: the present one if it stays, else the first)."""

    group: int
    target: tuple[int, ...]
    preferred: int = 0
    is_advised: bool = False
    """Advice placed it: evening out by number leaves it there."""


class ReplicasAre(Struct, frozen=True, array_like=True, tag=21):
    """A partition's leader tells its committed voters, and the Raft index of that configuration."""

    group: int
    replicas: tuple[int, ...]
    as_of: int = 0


class AcceptLoss(Struct, frozen=True, array_like=True, tag=23):
    """Most replicas of a partition lost their stores: let one node go on with what it has, be it nothing."""

    group: int
    heir: int
    """0: none, for a leader was elected after all."""
    as_of: int = 0
    """The partition's ``as_of`` when its replicas were asked: later ones may have more."""


class Rebalance(Struct, frozen=True, array_like=True, tag=22):
    """Even out replicas and leaders, at most so many moves in this step (0: only tell how many are needed)."""

    moves_max: int = 10


class Ban(Struct, frozen=True, array_like=True, tag=40):
    """A client id, user name or address may not connect; replaces an earlier ban of the same."""

    kind: str
    value: str
    reason: str = ""
    until_ms: int = 0
    """Wall time of its end; 0: until it is lifted."""


class Unban(Struct, frozen=True, array_like=True, tag=41):
    """The banned client id, user name or address may connect again."""

    kind: str
    value: str


Command = (
    SetClusterId
    | NodeSeen
    | NodeStateChanged
    | ForgetNode
    | RemoveNode
    | ReplaceNode
    | CreateNamespace
    | AlterNamespace
    | DeleteNamespace
    | PutClient
    | DeleteClient
    | PutAcl
    | DeleteAcl
    | SetSetting
    | DeleteSetting
    | CreateTopic
    | AlterTopic
    | DeleteTopic
    | CreateHidden
    | CreateCursor
    | DeleteCursor
    | SetTarget
    | ReplicasAre
    | AcceptLoss
    | Rebalance
    | Ban
    | Unban
    | CreateGroup
    | AlterGroup
    | DeleteGroup
    | ResetGroup
    | ShareGroup
    | ReadDead
)


class Envelope(Struct, frozen=True, array_like=True):
    """A command as it stands in the log; the command is read later, so that an unknown one still has a sender."""

    origin: int
    boot: int
    number: int
    wall_ms: int
    command: Raw


class Moves(Struct, frozen=True, array_like=True):
    """What a ``Rebalance`` did: moves begun, and how many more would be needed."""

    begun: int
    remaining: int


Value = (
    NodeRecord
    | Namespace
    | ClientRecord
    | AclRecord
    | TopicRecord
    | CursorRecord
    | PartitionRecord
    | Moves
    | BanRecord
    | ConsumerGroup
)

INVALID: Final = "invalid"
NOT_FOUND: Final = "not_found"
EXISTS: Final = "exists"
CONFLICT: Final = "conflict"
LIMIT: Final = "limit"


class Result:
    """How a command ended. ``code`` is empty when it was done, else one of the words above, or a transport's own."""

    def __init__(self, ok: bool, error: str = "", value: Value | None = None, code: str = "") -> None:
        self.ok = ok
        self.error = error
        """One sentence for people: what is wrong and what to do."""
        self.value = value
        """The record that came of it; of a deletion, the record as it was."""
        self.code = code

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Result)
            and (self.ok, self.error, self.code) == (other.ok, other.error, other.code)
            and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash((self.ok, self.error, self.code))

    def __repr__(self) -> str:
        return f"Result(ok, {self.value!r})" if self.ok else f"Result({self.code}: {self.error})"


class RefusedError(FlockError):
    """A command can't be done; nothing has changed."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


_encoder: Final = msgspec.msgpack.Encoder()
_envelopes: Final = msgspec.msgpack.Decoder(Envelope)
_commands: Final[msgspec.msgpack.Decoder[Command]] = msgspec.msgpack.Decoder(Command)
_results: Final = msgspec.msgpack.Decoder(tuple[bool, str, str])


def encode_envelope(origin: int, boot: int, number: int, wall_ms: int, command: Command) -> bytes:
    """A command as it goes into the log."""
    return _encoder.encode(Envelope(origin, boot, number, wall_ms, Raw(_encoder.encode(command))))


def decode_envelope(data: bytes) -> Envelope:
    """Read ``encode_envelope``, the command left as it is; ``RefusedError`` when it is not that."""
    try:
        return _envelopes.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(INVALID, f"This is no command for the cluster state: {error}.") from error


def decode_command(data: bytes | Raw) -> Command:
    """Read a command; ``RefusedError`` when this version does not know it."""
    try:
        return _commands.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(
            INVALID, f"This node's version does not know this command ({error}); upgrade all nodes."
        ) from error


def encode_result(result: Result) -> bytes:
    """A result as it travels back; the value stays where the command was applied."""
    return _encoder.encode((result.ok, result.error, result.code))


def decode_result(data: bytes) -> Result:
    """Read ``encode_result``; ``RefusedError`` when it is not that."""
    try:
        ok, error, code = _results.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise RefusedError(INVALID, f"This is no result of a command: {problem}.") from problem
    return Result(ok, error, None, code)
