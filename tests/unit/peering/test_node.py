"""The frames of a clustered node."""

from __future__ import annotations

import random

from flockmq.cluster.state import ClusterState
from flockmq.durable.assembly import assemble
from flockmq.durable.parts import Parts
from flockmq.gossip.maps_codec import HAVE, encode_delta, encode_pair
from flockmq.gossip.member import Member
from flockmq.gossip.settings import GossipSettings
from flockmq.node.ports import OpenGate
from flockmq.node.settings import BrokerSettings
from flockmq.peering.channels import FEEDS, MAPS, RAFT, RUNS, part_head, split_parts
from flockmq.peering.formation import Rules
from flockmq.peering.node import CHANGES_MAX, ClusterNode

NOW = 1_000
PEER = 2
CLUSTER_ID = 9


class Shipped:
    """The edges of a node: keeps frames that leave before the end of a turn."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, list[bytes]]] = []
        self.breaking: ClusterNode | None = None

    def ship(self, peer: int, pieces: list[bytes]) -> None:
        self.frames.append((peer, pieces))
        if self.breaking is not None:
            self.breaking.link_down(peer, NOW)

    def kick(self) -> None:
        pass

    def wake(self) -> None:
        pass

    def keep(self, state: bytes) -> None:
        pass

    def outdate(self) -> None:
        pass

    def changed(self, state: ClusterState) -> None:
        pass

    def stopped(self, reason: str) -> None:
        pass


def linked_node(shipped: Shipped) -> ClusterNode:
    node = assemble(
        Parts(
            me=Member(1, 1, "n1@test", "127.0.0.1", 16_000, cluster_id=CLUSTER_ID),
            settings=BrokerSettings(),
            gate=OpenGate(),
            gossip=GossipSettings(),
            rules=Rules(lists_peers=False, contact_points=1),
            rng=random.Random(1),
            now=NOW,
            wall_ms=NOW,
            edges=shipped,
            store=None,
        )
    ).cluster
    node.link_up(PEER, CLUSTER_ID, NOW)
    node.turn(NOW)
    return node


def parts(pieces: list[bytes]) -> list[tuple[int, bytes]]:
    return list(split_parts(b"".join(pieces)))


def test_what_is_said_now_leaves_at_once_and_nothing_overtakes_it() -> None:
    shipped = Shipped()
    node = linked_node(shipped)
    node.exchange.send(PEER, RUNS, b"first")
    node.exchange.send_now(PEER, b"second")
    node.exchange.send(PEER, FEEDS, b"third")
    assert [(peer, parts(pieces)) for peer, pieces in shipped.frames] == [(PEER, [(RUNS, b"first"), (RAFT, b"second")])]
    assert [(peer, parts(pieces)) for peer, pieces in node.turn(NOW)] == [(PEER, [(FEEDS, b"third")])]


def test_what_is_said_to_a_peer_without_a_link_is_dropped() -> None:
    shipped = Shipped()
    node = linked_node(shipped)
    node.exchange.send_now(7, b"x")
    assert node.exchange.frames_dropped == 1
    assert shipped.frames == []
    assert node.turn(NOW) == []


def test_a_link_may_break_while_something_is_shipped() -> None:
    shipped = Shipped()
    node = linked_node(shipped)
    shipped.breaking = node
    node.exchange.send_now(PEER, b"first")
    node.exchange.send(PEER, FEEDS, b"second")
    assert node.exchange.frames_dropped == 1
    assert node.turn(NOW) == []
    node.link_up(PEER, CLUSTER_ID, NOW)
    node.exchange.send(PEER, FEEDS, b"third")
    assert (FEEDS, b"third") in parts(node.turn(NOW)[0][1])


def test_routes_of_others_are_applied_in_slices_and_acknowledged_when_they_are() -> None:
    node = linked_node(Shipped())
    node.swim.peer_up(PEER, NOW)
    count = 2 * CHANGES_MAX + 10
    routes: dict[bytes, bytes | None] = {b"r/a/%d" % number: b"" for number in range(count)}
    body = encode_delta(PEER, 7, 0, count, routes)
    frame = part_head(MAPS, len(body)) + body
    table = node.broker.subscriptions
    known, acknowledged = [], []
    node.frame(PEER, frame, NOW)
    while True:
        said = [part for _, pieces in node.turn(NOW) for part in parts(pieces)]
        known.append(len(table.filters()))
        acknowledged.append((MAPS, encode_pair(HAVE, 7, count)) in said)
        if not node.has_more():
            break
    assert known == [CHANGES_MAX, 2 * CHANGES_MAX, count]
    assert acknowledged == [False, False, True]
