"""Which clients would get a message to a topic name, through which nodes, and why other nodes get none.

```
 explain(topic) on the publisher's node --> matching filters -> nodes      from its own table: no other node is asked
                                            hops: nodes that get it        and what is wrong with the way there
                                            here: this node's clients
 explain_here(topic) on the other nodes --> their clients                  asked for over CALLS, encoded as JSON
```
Nothing is published, and no choice of a shared group is used up. ACLs are not considered: they decide earlier, when a
client publishes or subscribes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError
from flockmq.mqtt.topics import check_topic_name
from flockmq.node.state import NodeState
from flockmq.peering.drawing import filter_order
from flockmq.peering.routes import Routes

if TYPE_CHECKING:
    from flockmq.routing.peer import Peer

CLIENTS_MAX: Final = 1_000
"""Most clients that one node tells about."""
CAPTURED_NOTE: Final = (
    "Persistent sessions wait for this name: QoS 1 and 2 are stored in $capture before they are acknowledged."
)
NO_LEASE_NOTE: Final = (
    "This node may not know the filters of all persistent sessions now: QoS 1 and 2 are stored in $capture, in case "
    "one waits for this name."
)
ACL_NOTE: Final = "ACLs are not considered: they decide when a client publishes or subscribes."


class Recipient:
    """A client of a node that would get the message, or one of a group of which one member gets it."""

    def __init__(self, client_id: str, topic_filter: str, group: str, qos: int, connected: bool) -> None:
        self.client_id = client_id
        self.topic_filter = topic_filter
        self.group = group
        """Empty when the client subscribed alone."""
        self.qos = qos
        """The highest QoS that the client gets."""
        self.connected = connected
        """False: the client gets nothing at QoS 0; messages of QoS 1 and 2 wait for it."""


class Recipients:
    """The clients of one node."""

    def __init__(self, clients: list[Recipient], more: int) -> None:
        self.clients = clients
        self.more = more
        """How many more clients there are."""


class FilterTrace:
    """A filter that matches, and the nodes it leads to."""

    def __init__(self, topic_filter: str, group: str, nodes: list[str]) -> None:
        self.topic_filter = topic_filter
        self.group = group
        self.nodes = nodes


class HopTrace:
    """Another node that would be sent the message."""

    def __init__(self, node_id: int, name: str, filters: list[str], groups: list[str], problem: str) -> None:
        self.node_id = node_id
        self.name = name
        self.filters = filters
        self.groups = groups
        """Shared groups with members on that node, as ``$share/GROUP/FILTER``: the router may choose the node."""
        self.problem = problem
        """The problem on the way to the node; empty: none."""


class Explanation:
    """The way of a message, as one node knows it."""

    def __init__(
        self,
        topic: str,
        node: str,
        filters: list[FilterTrace],
        here: Recipients,
        hops: list[HopTrace],
        why_not: list[str],
        captured: str,
    ) -> None:
        self.topic = topic
        self.node = node
        self.filters = filters
        self.here = here
        self.hops = hops
        self.why_not = why_not
        """Sentences about nodes and filters that are left out."""
        self.captured = captured
        """Why a message of QoS 1 or 2 is stored for persistent sessions; empty when it is not."""


def explain(node: NodeState, routes: Routes, name: str, topic: bytes) -> Explanation:
    """Explain where a message to this name would go if it were published on this node, called ``name``."""
    check_topic_name(topic)
    filters: list[FilterTrace] = []
    by_peer: dict[int, tuple[Peer, list[str], list[str]]] = {}
    for entry in node.table.matching(topic):
        text = entry.topic_filter.decode()
        if entry.has_own() or entry.peers is not None:
            nodes = [name] if entry.has_own() else []
            for peer in entry.peers or ():
                nodes.append(peer.name)
                by_peer.setdefault(peer.node_id, (peer, [], []))[1].append(text)
            filters.append(FilterTrace(text, "", sorted(nodes)))
        for group in list(entry.groups.values()) if entry.groups is not None else ():
            label = group.name.decode()
            nodes = [name] if group.members else []
            for peer in group.remote or ():
                nodes.append(peer.name)
                by_peer.setdefault(peer.node_id, (peer, [], []))[2].append(f"$share/{label}/{text}")
            filters.append(FilterTrace(text, label, sorted(nodes)))
    filters.sort(key=order_of)
    hops = [
        HopTrace(peer.node_id, peer.name, sorted(alone, key=filter_order), sorted(shared), problem_of(routes, peer))
        for peer, alone, shared in by_peer.values()
    ]
    hops.sort(key=name_of)
    left_out = why_not(node, routes, topic, filters, by_peer)
    here = explain_here(node, topic)
    return Explanation(topic.decode(), name, filters, here, hops, left_out, why_captured(node, topic))


def why_captured(node: NodeState, topic: bytes) -> str:
    """Why messages of QoS 1 and 2 to this name are stored for persistent sessions; empty: they are not."""
    capture = node.table.capture
    if capture.topic is None or topic.startswith((b"$SYS/", b"$delayed/")):
        return ""
    plan = node.table.plan(topic)
    if plan.durable is not None:
        return ""
    if plan.captured is not None:
        return CAPTURED_NOTE
    return NO_LEASE_NOTE if node.now >= capture.lapses_at else ""


def explain_here(node: NodeState, topic: bytes) -> Recipients:
    """List the clients of this node that would get a message to this name."""
    check_topic_name(topic)
    found: list[Recipient] = []
    more = 0
    for entry in node.table.matching(topic):
        subscriptions = entry.subscriptions()
        for group in list(entry.groups.values()) if entry.groups is not None else ():
            subscriptions = subscriptions + group.members
        room = CLIENTS_MAX - len(found)
        more += max(0, len(subscriptions) - room)
        for subscription in subscriptions[:room]:
            session = subscription.session
            found.append(
                Recipient(
                    session.client_id,
                    entry.topic_filter.decode(),
                    subscription.group.decode(),
                    subscription.qos,
                    session.connection is not None,
                )
            )
    found.sort(key=client_of)
    return Recipients(found, more)


def problem_of(routes: Routes, peer: Peer) -> str:
    """The problem on the way to a peer; empty: none."""
    if not peer.linked:
        return f"There is no link to {peer.name}: QoS 0 is dropped, QoS 1 and 2 wait ({peer.kept_bytes:,} bytes)."
    if peer.is_full():
        return f"{peer.name} takes no more at the moment: publishers wait for it."
    if peer.node_id in routes.suspects:
        return f"{peer.name} is suspected to be dead; it is sent messages until that is certain."
    return ""


def why_not(
    node: NodeState,
    routes: Routes,
    topic: bytes,
    filters: list[FilterTrace],
    by_peer: dict[int, tuple[Peer, list[str], list[str]]],
) -> list[str]:
    """Sentences about filters and nodes that the explanation leaves out, with the reasons."""
    sentences: list[str] = []
    if topic.startswith(b"$SYS/"):
        sentences.append("Topics below $SYS are each node's own: clients of other nodes don't get them.")
    elif topic.startswith(b"$delayed/"):
        sentences.append("The message waits on this node first; ask about the topic that it will be published to.")
    elif topic.startswith(b"$"):
        sentences.append("Filters that begin with a wildcard don't match names that begin with $.")
    if not filters:
        sentences.append(f"No filter of any node matches ({len(node.table.filters()):,} are known).")
    known: dict[int, Peer] = dict(routes.alive)
    known.update(routes.suspects)
    for node_id, peer in sorted(known.items()):
        if node_id not in by_peer:
            sentences.append(f"{peer.name}: no filter of its clients matches.")
    for _, dead in sorted(routes.dead.items()):
        sentences.append(f"{dead} is dead: its routes are gone until it returns.")
    sentences.append(ACL_NOTE)
    return sentences


def encode_recipients(recipients: Recipients) -> bytes:
    """The answer to another node's question."""
    clients = [[one.client_id, one.topic_filter, one.group, one.qos, one.connected] for one in recipients.clients]
    return json.dumps({"clients": clients, "more": recipients.more}).encode()


def decode_recipients(body: bytes) -> Recipients:
    """Read another node's answer; FlockError for other bytes."""
    try:
        read = json.loads(body)
        clients = [
            Recipient(str(one[0]), str(one[1]), str(one[2]), int(one[3]), bool(one[4])) for one in read["clients"]
        ]
        return Recipients(clients[:CLIENTS_MAX], int(read["more"]))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise FlockError("Another node's answer about its clients can't be read.") from error


def order_of(trace: FilterTrace) -> tuple[str, tuple[int, list[tuple[int, str]]]]:
    """Filters of clients that subscribed alone first."""
    return (trace.group, filter_order(trace.topic_filter))


def name_of(hop: HopTrace) -> str:
    """Order hops by the names of their nodes."""
    return hop.name


def client_of(recipient: Recipient) -> tuple[str, str, str]:
    """Order recipients by client id."""
    return (recipient.client_id, recipient.topic_filter, recipient.group)
