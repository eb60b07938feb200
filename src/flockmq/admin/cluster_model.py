"""What the REST API says about the cluster. As in ``model``: names carry units, what does not apply is null."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from flockmq.admin.model import Request, Response

MemberState = Literal["alive", "suspect", "dead", "left"]
Role = Literal["core", "edge"]
StepKind = Literal["Publish", "Append", "Route", "Deliver"]
Gets = Literal["now", "later", "maybe", "no"]
NodeId = Annotated[str, Meta(description="16 hexadecimal digits", examples=["9f86d081884c7d65"])]


class Member(Response, frozen=True):
    """A node, as the node that answers sees it."""

    name: str
    id: NodeId
    host: str
    port: int
    state: MemberState
    role: Role
    version: str
    is_self: Annotated[bool, Meta(description="Whether this is the node that answers")]
    linked: Annotated[bool, Meta(description="Whether there is a connection to it; always true for itself")]
    rtt_ms: Annotated[float | None, Meta(description="Round trip over that connection, measured every few seconds")]
    clock_offset_ms: Annotated[
        float | None,
        Meta(description="Its wall clock minus the answering node's, give or take the round trip"),
    ]
    clients: Annotated[int | None, Meta(description="Clients connected to it, as it told last")]
    routes: Annotated[int, Meta(description="Topic filters that lead there")]
    unsent_bytes: Annotated[int, Meta(description="What waits to be sent to it")]
    leads: Annotated[int | None, Meta(description="Partitions that it leads; null when it does not tell")] = None
    replicas: Annotated[int | None, Meta(description="Partitions that it holds a copy of")] = None
    lag: Annotated[int | None, Meta(description="Records that the worst of its copies is behind")] = None
    zone: Annotated[str, Meta(description="Zone that it stands in; empty when it was told none")] = ""


class Decisions(Response, frozen=True):
    """The nodes that decide about cluster state (group 0), and how the partitions of durable topics do."""

    index: Annotated[int, Meta(description="Index of cluster state on the node that answers")]
    leader: Annotated[str | None, Meta(description="Node that leads group 0; null when none is known")]
    voters: Annotated[list[str], Meta(description="Nodes that decide")]
    learners: Annotated[list[str], Meta(description="Nodes that will, once they have caught up")]
    topics: Annotated[int, Meta(description="Durable topics, without hidden ones")]
    partitions: Annotated[int, Meta(description="Partitions of these; the counts of what is not well are of all")]
    without_leader: Annotated[int, Meta(description="Partitions without a leader, as far as nodes answer")]
    moving: Annotated[int, Meta(description="Partitions whose copies are on their way to other nodes")]
    few_copies: Annotated[int, Meta(description="Partitions with fewer copies than their topic wants")]
    replica_away: Annotated[int, Meta(description="Partitions with a copy on a node that does not answer")]
    stopped: Annotated[int, Meta(description="Partitions with a replica that stopped; its node's log says why")]
    warning: Annotated[str, Meta(description="What is risky about the nodes that decide; empty for nothing")]
    damaged: Annotated[int, Meta(description="Partitions with a copy whose files do not give back all records")] = 0
    differing: Annotated[
        int, Meta(description="Partitions with copies that differ although checksums fit: a safety violation")
    ] = 0
    lost: Annotated[int, Meta(description="Partitions that most replicas lost; an operator has to accept that")] = 0
    hidden_partitions: Annotated[
        int, Meta(description="Partitions of hidden topics, in which the cluster keeps persistent sessions")
    ] = 0
    hidden_without_leader: Annotated[
        list[str], Meta(description="Those of them without a leader, as `$sessions/0`: topic and shard")
    ] = field(default_factory=list)


class Cluster(Response, frozen=True):
    """The cluster as one node sees it. All nodes agree on it within moments of a change."""

    id: Annotated[NodeId | None, Meta(description="Null while the node belongs to none")]
    node: Annotated[str, Meta(description="The node that answers")]
    state: Annotated[
        Literal["off", "waiting", "formed"], Meta(description="`waiting`: it belongs to no cluster yet, see `reason`")
    ]
    reason: Annotated[str, Meta(description="What it waits for, or why it is alone; empty when nothing")]
    members: list[Member]
    decisions: Annotated[Decisions | None, Meta(description="Null on a node without cluster state")] = None


class JoinRequest(Request, frozen=True):
    """Which cluster to join."""

    address: Annotated[
        str, Meta(description="Any node of it: `host`, `host:port` or `name@host`", examples=["n1.example:16000"])
    ]
    discard_data: Annotated[bool, Meta(description="Join though topics or sessions of this node are lost by it")] = (
        False
    )


class LeaveQuery(Request, frozen=True):
    """How to leave."""

    discard_data: Annotated[bool, Meta(description="Leave though no node takes over what this node stores")] = False


class JoinResult(Response, frozen=True):
    """What came of it."""

    id: NodeId
    changed: Annotated[bool, Meta(description="False when the node was a member before")]
    set_aside: Annotated[
        str, Meta(description="Folder of the node with what it stored before; empty when nothing would be missed")
    ] = ""


class RemoveNodeQuery(Request, frozen=True):
    """How to take a node out."""

    accept_data_loss: Annotated[
        bool, Meta(description="Partitions that have no majority of their copies without it begin anew, empty")
    ] = False


class NodeRemoval(Response, frozen=True):
    """How far a node is on its way out."""

    name: str
    id: NodeId
    partitions_left: Annotated[int, Meta(description="Partitions whose copy on it is yet to be made elsewhere")]
    votes: Annotated[bool, Meta(description="Whether it still is a member of the group that decides")]
    done: Annotated[bool, Meta(description="Whether the cluster has forgotten it; asking again then says 404")]


class Route(Response, frozen=True):
    """A topic filter and the nodes that have subscribers for it."""

    filter: str
    share_group: str | None
    nodes: list[str]


class Step(Response, frozen=True):
    """One step of a message's way."""

    source: Annotated[str, Meta(description="The publisher, a node, or the log that a session which is away reads")]
    target: Annotated[str, Meta(description="A node, or a client")]
    kind: StepKind
    topic: Annotated[str, Meta(description="The topic name, or the filter that leads there")]
    share_group: str | None
    qos: Annotated[int | None, Meta(description="Most that the subscription asks for")]
    note: Annotated[str, Meta(description="What to know about it, such as a client that is away")]


class Miss(Response, frozen=True):
    """A node that would not get the message, and why."""

    node: str
    reason: str


class DurablePlace(Response, frozen=True):
    """Where a message would be kept."""

    namespace: str
    topic: Annotated[str, Meta(description="The durable topic")]
    shard: Annotated[int | None, Meta(description="Null when it depends on the message's key")]
    group: int | None
    leader: Annotated[str | None, Meta(description="Node that would append it; null when none is known")]


class SessionVerdict(Response, frozen=True):
    """Whether one session gets the message, and why."""

    client_id: str
    gets: Annotated[
        Gets,
        Meta(description="`later`: when its client returns; `maybe`: a group chooses a member, or ask again"),
    ]
    filter: Annotated[str | None, Meta(description="Its subscription that counts; null when none matches")]
    qos: Annotated[int | None, Meta(description="Most that this subscription asks for")]
    reasons: Annotated[list[str], Meta(description="Sentences for people")]


class GroupVerdict(Response, frozen=True):
    """Whether a consumer group takes a message."""

    group: str
    takes: Literal["yes", "maybe", "no"]
    reasons: Annotated[list[str], Meta(description="Why, and which member gets it")]


class Explanation(Response, frozen=True):
    """Which clients would get a message, on which way, and which nodes would not."""

    topic: str
    node: Annotated[str, Meta(description="Where it would be published: the node that answers")]
    steps: list[Step]
    misses: list[Miss]
    notes: Annotated[list[str], Meta(description="What else to know, such as filters that look alike and don't match")]
    durable: Annotated[DurablePlace | None, Meta(description="Null when no durable topic keeps it")] = None
    captured: Annotated[
        bool, Meta(description="Whether QoS 1 and 2 are stored for persistent sessions before they are acknowledged")
    ] = False
    session: Annotated[SessionVerdict | None, Meta(description="About the session asked for; else null")] = None
    groups: Annotated[
        list[GroupVerdict], Meta(description="Consumer groups that read the durable topic, at most 50")
    ] = field(default_factory=list)


class ExplainQuery(Request, frozen=True):
    """Whose message."""

    publisher: Annotated[str, Meta(description="Name for the publisher in the answer")] = "publisher"
    client_id: Annotated[
        str | None, Meta(description="Say also whether the session of this client, in the topic's namespace, gets it")
    ] = None
