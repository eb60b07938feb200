from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import FlockError
from flockmq.mqtt.encode import encode_ack, encode_packet
from flockmq.mqtt.packets import (
    PUBREC,
    PUBREL,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Subscribe,
    SubscribeEntry,
    Will,
)
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.run import make_run
from flockmq.node.ports import Accept, AuthRequest, Identity, Refuse, Verdict
from flockmq.node.publishing import publish_message
from flockmq.peering.channels import SESSIONS
from flockmq.peering.claiming import CLAIMS_MAX, Claim
from flockmq.peering.session_messages import CHUNK_BYTES_MAX, CLAIM, MOVE, REVOKE, Message
from flockmq.testing.harness_client import HarnessClient
from session_cluster import SessionCluster, SimNode


class UserGate:
    """Lets everybody in under the name they give."""

    version = 0

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        return Accept(Identity(request.client_id, request.username))

    def resume(self, request: AuthRequest, data: bytes) -> Verdict | None:
        return Refuse(0x8C, "no")

    def may_publish(self, identity: Identity, topic: bytes) -> bool:
        return True

    def may_subscribe(self, identity: Identity, topic_filter: bytes) -> bool:
        return True


def cluster_of(count: int, seed: int = 0, gate: UserGate | None = None) -> tuple[SessionCluster, list[SimNode]]:
    cluster = SessionCluster(seed, count, delay_ms=(1, 10), gate=gate)
    cluster.settle()
    return cluster, list(cluster.nodes.values())


def packets(cluster: SessionCluster, client: HarnessClient, ms_max: int = 9_000) -> list[Packet]:
    """Everything up to and after the CONNACK, as soon as that is there."""
    end = cluster.now + ms_max
    found: list[Packet] = []
    while not found and not client.closed and cluster.now < end:
        cluster.step()
        found = client.received()
    return found or client.received()


def connack(cluster: SessionCluster, client: HarnessClient) -> Connack:
    found = packets(cluster, client)
    assert found, "no CONNACK came"
    assert isinstance(found[0], Connack)
    return found[0]


def connected(cluster: SessionCluster, node: SimNode, client_id: str, **how: object) -> HarnessClient:
    client = cluster.connect(node, client_id, **how)  # type: ignore[arg-type]
    assert connack(cluster, client).reason == 0
    return client


def id_with_registrar(cluster: SessionCluster, node: SimNode) -> str:
    """A client id that this node decides about."""
    for number in range(1_000):
        if node.ownership.registrar_of(f"id-{number}") == node.node_id:
            return f"id-{number}"
    raise AssertionError("unlucky")


# --- alone ---


def test_a_node_alone_asks_nobody() -> None:
    cluster = SessionCluster(0, 1)
    (node,) = cluster.nodes.values()
    client = cluster.connect(node, "x")
    assert isinstance(client.received()[0], Connack)
    epoch = node.sessions["x"].epoch
    assert epoch > 0
    again = cluster.connect(node, "x")
    assert isinstance(again.received()[0], Connack)
    assert node.sessions["x"].epoch > epoch
    assert node.outbox.sent_bytes == 0
    assert not node.ownership.registrar.records
    assert node.ownership.owner_of("x") == node.node_id


def test_sessions_of_a_lone_node_are_registered_when_another_comes() -> None:
    cluster = SessionCluster(0, 1)
    (node,) = cluster.nodes.values()
    names = [f"client-{number}" for number in range(20)]
    for name in names:
        cluster.connect(node, name)
    other = cluster.start(5)
    cluster.settle()
    cluster.check(names)
    assert connack(cluster, cluster.connect(other, names[0])).session_present
    cluster.settle()
    cluster.check(names)


# --- moving ---


def test_who_is_taken_over_from_another_node_is_heard_to_the_end() -> None:
    """Much that the client said waits for a turn, and its DISCONNECT, when another node asks for the session."""
    cluster, (one, two, _three) = cluster_of(3)
    watcher = connected(cluster, one, "watcher")
    watcher.subscribe(b"#")
    client = connected(cluster, one, "x", will=Will(b"will", b"gone", 0, False))
    filters = [SubscribeEntry(b"a/%d" % number, 0) for number in range(2_000)]
    said: list[Packet] = [Subscribe(1, filters), Publish(b"t", b"last"), Disconnect()]
    one.harness.broker.receive(client.connection, b"".join(encode_packet(packet, 5) for packet in said), cluster.now)
    assert client.connection.waits_turn
    epoch = one.sessions["x"].epoch + 1
    one.ownership.giver.on_revoke(Message(REVOKE, "x", nonce=7, epoch=epoch, node=two.node_id), cluster.now)
    assert "x" not in one.sessions
    one.harness.flush()
    assert [message.payload for message in watcher.messages()] == [b"last"]


def test_what_waits_comes_along() -> None:
    cluster, (one, two, three) = cluster_of(3)
    client = connected(cluster, one, "x")
    client.subscribe(b"t", 1)
    cluster.settle()
    client.drop()
    for number in range(5):
        cluster.publish(three, b"t", b"%d" % number, 1)
    cluster.settle()
    found = packets(cluster, cluster.connect(two, "x"))
    assert isinstance(found[0], Connack)
    assert found[0].session_present
    assert [packet.payload for packet in found[1:] if isinstance(packet, Publish)] == [b"0", b"1", b"2", b"3", b"4"]
    assert all(isinstance(packet, Publish) and not packet.dup for packet in found[1:])
    cluster.settle()
    cluster.check(["x"])
    assert one.ownership.giver.sessions_out == 1
    assert two.ownership.taker.sessions_in == 1
    assert one.harness.broker.subscriptions.count == 0
    assert two.harness.broker.subscriptions.count == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_in_flight_is_sent_again_with_its_id(qos: int) -> None:
    cluster, (one, two, _) = cluster_of(3)
    client = connected(cluster, one, "x")
    client.subscribe(b"t", qos)
    for number in range(3):
        cluster.publish(one, b"t", b"%d" % number, qos)
    cluster.step()
    first = client.messages()
    client.acknowledge(first[1])
    found = packets(cluster, cluster.connect(two, "x"))
    again = [packet for packet in found if isinstance(packet, Publish)]
    assert [(packet.packet_id, packet.payload, packet.dup) for packet in again] == [
        (first[0].packet_id, b"0", True),
        (first[2].packet_id, b"2", True),
    ]


def test_a_release_goes_on_at_the_new_node() -> None:
    cluster, (one, two, _) = cluster_of(3)
    client = connected(cluster, one, "x")
    client.subscribe(b"t", 2)
    cluster.publish(one, b"t", b"m", 2)
    cluster.step()
    (message,) = client.messages()
    client.send(encode_ack(PUBREC, message.packet_id, 0, 5))
    found = packets(cluster, cluster.connect(two, "x"))
    assert [(packet.kind, packet.packet_id) for packet in found if isinstance(packet, Ack)] == [
        (PUBREL, message.packet_id)
    ]


def test_ids_received_at_qos_2_are_remembered() -> None:
    cluster, (one, two, _) = cluster_of(3)
    watcher = connected(cluster, two, "watcher")
    watcher.subscribe(b"t", 2)
    client = connected(cluster, one, "x")
    client.send(Publish(b"t", b"m", 2, False, False, 7))
    other = connected(cluster, two, "x")
    other.send(Publish(b"t", b"m", 2, False, True, 7))  # no PUBREC had come
    assert isinstance(other.received()[0], Ack)
    assert watcher.messages() == []  # the first one was published at the other node; this one is a repeat


def test_a_large_session_comes_in_pieces() -> None:
    cluster, (one, two, _) = cluster_of(3)
    connected(cluster, one, "x").subscribe(b"t", 1)
    cluster.settle()
    for number in range(40):
        cluster.publish(one, b"t", bytes((number,)) * 100_000, 1)
    client = cluster.connect(two, "x")
    got = [packet.payload[0] for packet in packets(cluster, client) if isinstance(packet, Publish)]
    assert got == list(range(40))
    assert CHUNK_BYTES_MAX < one.outbox.largest < CHUNK_BYTES_MAX + 200
    cluster.settle()
    cluster.check(["x"])


def test_a_broken_link_in_the_middle_of_a_move() -> None:
    cluster, (one, two, _) = cluster_of(3)
    connected(cluster, one, "x").subscribe(b"t", 1)
    cluster.settle()
    for number in range(40):
        cluster.publish(one, b"t", bytes((number,)) * 100_000, 1)
    client = cluster.connect(two, "x")
    while not two.ownership.taker.arrivals:
        cluster.step()
    cluster.cut(one.node_id, two.node_id)
    cluster.tell_later(500, 600, "up", one.node_id, two.node_id)
    got = [packet.payload[0] for packet in packets(cluster, client) if isinstance(packet, Publish)]
    assert got == list(range(40))
    cluster.settle()
    cluster.check(["x"])


def test_message_expiry_goes_on_counting() -> None:
    cluster, (one, two, _) = cluster_of(3)
    client = connected(cluster, one, "x")
    client.subscribe(b"t", 1)
    client.drop()
    cluster.settle()
    for expires_in in (1_000, 60_000):
        run = make_run(5, 1, False, b"t", b"%d" % expires_in, b"", cluster.now + expires_in)
        publish_message(one.harness.broker.node, run, cluster.now)
    cluster.run(2_000)
    found = packets(cluster, cluster.connect(two, "x"))
    messages = [packet for packet in found if isinstance(packet, Publish)]
    assert [message.payload for message in messages] == [b"60000"]
    assert messages[0].properties is not None
    assert messages[0].properties.message_expiry_s == 58


def test_shared_subscriptions_move() -> None:
    cluster, (one, two, _) = cluster_of(3)
    client = connected(cluster, one, "x")
    client.subscribe(b"$share/g/t", 1)
    client.drop()
    cluster.publish(one, b"t", b"m", 1)
    other = cluster.connect(two, "x")
    found = packets(cluster, other)
    assert [packet.payload for packet in found if isinstance(packet, Publish)] == [b"m"]
    entry = two.harness.broker.subscriptions.entry(b"t")
    assert entry is not None
    assert entry.groups is not None
    outbound = two.sessions["x"].outbound
    assert outbound is not None
    assert outbound.flights[0].group is entry.groups[b"g"]


# --- taking over ---


def test_the_old_client_is_told() -> None:
    cluster, (one, two, _) = cluster_of(3)
    client = connected(cluster, one, "x")
    connected(cluster, two, "x")
    assert [packet.reason for packet in client.received() if isinstance(packet, Disconnect)] == [0x8E]
    assert client.closed
    assert one.harness.broker.stats.takeovers == 1
    cluster.settle()
    cluster.check(["x"])


def test_a_clean_session_does_not_move() -> None:
    cluster, (one, two, _) = cluster_of(3)
    connected(cluster, one, "x", expiry_s=0)
    assert not connack(cluster, cluster.connect(two, "x")).session_present
    cluster.settle()
    cluster.check(["x"])


def test_a_clean_start_ends_the_session_where_it_is() -> None:
    cluster, (one, two, _) = cluster_of(3)
    client = connected(cluster, one, "x")
    client.subscribe(b"t", 1)
    client.drop()
    assert not connack(cluster, cluster.connect(two, "x", clean=True)).session_present
    cluster.settle()
    cluster.check(["x"])
    assert one.harness.broker.subscriptions.count == 0
    assert two.harness.broker.subscriptions.count == 0


@pytest.mark.parametrize(
    ("delay_s", "clean", "published"), [(0, False, 1), (0, True, 1), (60, False, 0), (60, True, 1)]
)
def test_the_will_of_who_is_taken_over(delay_s: int, clean: bool, published: int) -> None:
    """As on one node: due at once without a delay; void when the client is back in time; due when the session ends."""
    cluster, (one, two, _) = cluster_of(3)
    properties = Properties()
    properties.will_delay_s = delay_s
    connected(cluster, one, "x", will=Will(b"will", b"gone", 1, False, properties))
    connected(cluster, two, "x", clean=clean)
    cluster.run(70_000)
    cluster.settle()
    wills = [node.harness.broker.stats.wills_published for node in cluster.living()]
    assert sum(wills) == published


def test_a_client_that_leaves_while_it_waits_leaves_the_session_where_it_came() -> None:
    cluster, (one, two, _) = cluster_of(3)
    connected(cluster, one, "x", expiry_s=10).subscribe(b"t", 1)
    cluster.settle()
    cluster.connect(two, "x").drop()
    cluster.settle()
    cluster.check(["x"])
    assert cluster.connected("x") == []
    (owner,) = cluster.owners("x")
    session = cluster.nodes[owner].sessions["x"]
    assert session.timer is not None
    cluster.run(11_000)
    assert cluster.owners("x") == []
    cluster.settle()
    cluster.check(["x"])


def test_two_nodes_at_once() -> None:
    cluster, (one, two, three) = cluster_of(3)
    connected(cluster, one, "x")
    first = cluster.connect(two, "x")
    second = cluster.connect(three, "x")
    cluster.settle()
    cluster.check(["x"])
    assert len(cluster.connected("x")) == 1
    assert first.closed != second.closed


def test_two_connections_of_one_node_at_once() -> None:
    cluster, nodes = cluster_of(3)
    name = id_with_registrar(cluster, nodes[0])
    first = cluster.connect(nodes[1], name)
    second = cluster.connect(nodes[1], name)
    assert [packet.reason for packet in first.received() if isinstance(packet, Connack)] == [0x89]
    assert first.closed
    assert connack(cluster, second).reason == 0
    cluster.settle()
    cluster.check([name])


def test_back_and_forth_while_it_moves() -> None:
    """Revoked while the session is still coming: it is passed on."""
    cluster, (one, two, three) = cluster_of(3)
    connected(cluster, one, "x").subscribe(b"t", 1)
    cluster.settle()
    for number in range(30):
        cluster.publish(one, b"t", bytes((number,)) * 100_000, 1)
    between = cluster.connect(two, "x")
    while not two.ownership.taker.arrivals:
        cluster.step()
    last = cluster.connect(three, "x")
    found = packets(cluster, last)
    assert isinstance(found[0], Connack)
    assert found[0].session_present
    assert [packet.payload[0] for packet in found if isinstance(packet, Publish)] == list(range(30))
    assert between.closed
    cluster.settle()
    cluster.check(["x"])


def test_another_user_does_not_get_the_session() -> None:
    cluster, (one, two, _) = cluster_of(3, gate=UserGate())
    first = connected(cluster, one, "x", username="alice")
    assert connack(cluster, cluster.connect(two, "x", username="bob")).reason == 0x85
    assert not first.closed
    cluster.settle()
    cluster.check(["x"])
    connected(cluster, two, "x", username="alice")


# --- failures ---


def test_the_old_owner_dies_while_the_session_moves() -> None:
    cluster, (one, two, _) = cluster_of(3)
    connected(cluster, one, "x").subscribe(b"t", 1)
    for number in range(40):
        cluster.publish(one, b"t", bytes((number,)) * 100_000, 1)
    client = cluster.connect(two, "x")
    while not two.ownership.taker.arrivals:
        cluster.step()
    cluster.kill(one.node_id)
    began = cluster.now
    answer = connack(cluster, client)
    assert answer.reason == 0
    assert not answer.session_present
    assert cluster.now - began <= 2_500
    cluster.settle()
    cluster.check(["x"])


def test_the_new_owner_dies_while_the_session_moves() -> None:
    cluster, (one, two, three) = cluster_of(3)
    connected(cluster, one, "x").subscribe(b"t", 1)
    for number in range(40):
        cluster.publish(one, b"t", bytes((number,)) * 100_000, 1)
    cluster.connect(two, "x")
    while not two.ownership.taker.arrivals:
        cluster.step()
    cluster.kill(two.node_id)
    cluster.run(100)
    cluster.publish(one, b"t", b"\x28", 1)
    cluster.settle()
    cluster.check(["x"])
    assert cluster.owners("x") == [one.node_id]
    assert one.ownership.giver.sessions_kept == 1
    found = packets(cluster, cluster.connect(three, "x"))
    assert isinstance(found[0], Connack)
    assert found[0].session_present
    assert [packet.payload[0] for packet in found if isinstance(packet, Publish)] == list(range(41))


def test_the_registrar_dies_while_it_is_asked() -> None:
    cluster, nodes = cluster_of(4)
    name = id_with_registrar(cluster, nodes[0])
    connected(cluster, nodes[1], name).subscribe(b"t", 1)
    cluster.settle()
    cluster.kill(nodes[0].node_id, spread_ms=100)
    client = cluster.connect(nodes[2], name)
    answer = connack(cluster, client)
    assert answer.reason == 0
    assert answer.session_present  # asked of the next registrar, which asked around
    cluster.settle()
    cluster.check([name])


def test_a_silent_registrar_is_done_without() -> None:
    """No link to the registrar, which lives: decided alone after two seconds, put right when the link is back."""
    cluster, nodes = cluster_of(3)
    name = id_with_registrar(cluster, nodes[0])
    first = connected(cluster, nodes[1], name)
    first.subscribe(b"t", 1)
    first.drop()
    cluster.publish(nodes[1], b"t", b"m", 1)
    cluster.settle()
    cluster.cut(nodes[0].node_id, nodes[2].node_id)
    cluster.run(100)
    began = cluster.now
    client = cluster.connect(nodes[2], name)
    assert not connack(cluster, client).session_present
    assert 2_000 <= cluster.now - began <= 2_500
    assert nodes[2].ownership.claimant.claims_alone == 1
    cluster.mend(nodes[0].node_id, nodes[2].node_id)
    cluster.settle()
    cluster.check([name])
    assert cluster.owners(name) == [nodes[2].node_id]
    assert client.payloads() == [b"m"]  # what had waited comes after it


def test_after_a_partition_the_newer_owner_stays() -> None:
    cluster, nodes = cluster_of(3)
    older = connected(cluster, nodes[0], "x")
    older.subscribe(b"t", 1)
    cluster.settle()
    cluster.partition([[nodes[0].node_id], [nodes[1].node_id, nodes[2].node_id]])
    cluster.run(6_000)
    newer = connected(cluster, nodes[1], "x")
    assert len(cluster.connected("x")) == 2
    cluster.publish(nodes[0], b"t", b"from the other side", 1)
    cluster.heal()
    cluster.settle()
    cluster.check(["x"])
    assert older.closed
    assert [packet.reason for packet in older.received() if isinstance(packet, Disconnect)] == [0x8E]
    assert not newer.closed
    assert cluster.owners("x") == [nodes[1].node_id]
    assert newer.payloads() == [b"from the other side"]


def test_too_many_claims_are_refused() -> None:
    cluster, nodes = cluster_of(2)
    claims = nodes[0].ownership.claimant.claims
    for number in range(CLAIMS_MAX):
        claims[f"waiting-{number}"] = Claim(f"waiting-{number}", number + 1, None, cluster.now)
    five = cluster.connect(nodes[0], "x")
    (answer,) = five.received()
    assert isinstance(answer, Connack)
    assert answer.reason == 0x89
    four = nodes[0].harness.connect(Connect(4, "y", True))
    (answer,) = four.received()
    assert isinstance(answer, Connack)
    assert answer.reason == 3
    assert nodes[0].ownership.claimant.claims_busy == 2
    cluster.settle()
    cluster.check([])


def test_what_follows_a_connect_at_once_is_read_when_the_claim_is_through() -> None:
    cluster, nodes = cluster_of(3)
    name = id_with_registrar(cluster, nodes[0])
    watcher = connected(cluster, nodes[1], "watcher")
    watcher.subscribe(b"t", 0)
    client = cluster.connect(nodes[1], name)
    client.send(Publish(b"t", b"early", 0))
    assert client.connection.reading_paused
    cluster.settle()
    assert watcher.payloads() == [b"early"]
    assert not client.connection.reading_paused


# --- ends ---


def test_a_session_that_ends_is_released() -> None:
    cluster, nodes = cluster_of(3)
    names = [f"client-{number}" for number in range(9)]
    for number, name in enumerate(names):
        connected(cluster, nodes[number % 3], name, expiry_s=1 if number % 2 else 0).drop()
    cluster.run(2_000)
    cluster.settle()
    cluster.check(names)
    assert not any(node.ownership.registrar.records for node in nodes)


def test_an_administrator_ends_a_session() -> None:
    cluster, nodes = cluster_of(3)
    client = connected(cluster, nodes[0], "x")
    assert nodes[0].harness.broker.kick("x", cluster.now)
    cluster.settle()
    assert client.closed
    cluster.check(["x"])
    assert nodes[0].harness.broker.end_session("x", cluster.now)
    cluster.settle()
    cluster.check(["x"])
    assert cluster.owners("x") == []


def test_where_sessions_live() -> None:
    cluster, nodes = cluster_of(3)
    names = [f"client-{number}" for number in range(9)]
    for number, name in enumerate(names):
        connected(cluster, nodes[number % 3], name)
    cluster.settle()
    hints = sorted(hint for node in nodes for hint in node.ownership.hints())
    assert [(name, owner) for name, owner, _ in hints] == [
        (name, nodes[number % 3].node_id) for number, name in enumerate(names)
    ]
    for number, name in enumerate(names):
        registrar = cluster.nodes[nodes[0].ownership.registrar_of(name)]
        assert registrar.ownership.owner_of(name) == nodes[number % 3].node_id
    assert nodes[0].ownership.hints("zzz") == []
    assert sum(len(node.ownership.hints(count_max=1)) for node in nodes) <= 3


# --- strangers ---


@given(st.binary(max_size=300))
def test_garbage_is_refused(body: bytes) -> None:
    cluster = SessionCluster(0, 1)
    (node,) = cluster.nodes.values()
    node.ownership.peer_up(99, cluster.now)
    try:
        node.ownership.receive(99, body, cluster.now)
    except FlockError:
        return
    node.ownership.tick(cluster.now + 10_000)
    node.ownership.flush(cluster.now + 10_000)


def test_changed_messages_do_no_harm() -> None:
    """What nodes really say, with bytes changed: taken or refused in words; the nodes come to rest after it."""
    rng = random.Random(7)
    cluster, nodes = cluster_of(3, seed=7)
    refused = 0
    carried: list[tuple[int, int, bytes]] = []
    honest = cluster.carry

    def carry(sender: int, receiver: int, channel: int, body: bytes) -> None:
        if channel == SESSIONS and receiver in cluster.nodes:
            carried.append((sender, receiver, body))
        honest(sender, receiver, channel, body)

    cluster.carry = carry  # type: ignore[method-assign]
    for number in range(40):
        client = cluster.connect(rng.choice(nodes), f"client-{number % 4}")
        cluster.run(rng.choice([20, 200]))
        if not client.closed and client.connection.session is not None:
            client.subscribe(b"t", 1 + number % 2)
        cluster.publish(rng.choice(nodes), b"t", b"m", 2)
        sender, receiver, body = rng.choice(carried)
        changed = bytearray(body)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        try:
            cluster.nodes[receiver].ownership.receive(sender, bytes(changed), cluster.now)
        except FlockError:
            refused += 1
    assert refused
    cluster.run(100_000)
    cluster.settle(200_000)
    for node in nodes:
        assert not node.ownership.claimant.claims
        assert not node.ownership.giver.departures
        assert not node.ownership.taker.arrivals


def test_absurd_chunks_are_refused() -> None:
    cluster, nodes = cluster_of(2)
    for value in (0, 1 << 32, 5 << 32 | 5, 0xFFFF_FFFF):
        with pytest.raises(FlockError):
            nodes[0].ownership.receive(nodes[1].node_id, Message(MOVE, "x", node=1, value=value).encode(), cluster.now)
    with pytest.raises(FlockError):
        nodes[0].ownership.receive(nodes[1].node_id, Message(CLAIM, "x", epoch=1 << 63).encode(), cluster.now)
