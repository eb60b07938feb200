"""Client ids among whole nodes: whatever happens, in the end each has one owner, and its messages come."""

from __future__ import annotations

import random

import pytest

from flockmq.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Connack, Publish
from flockmq.testing.harness_client import HarnessClient
from session_nodes import Device, SessionNodes, connect_packet

SEEDS = range(4)
IDS = [f"client-{number}" for number in range(5)]


def connections(nodes: SessionNodes, client_id: str) -> list[tuple[int, int]]:
    """Node and epoch of each connection of a client."""
    found = [(node.number, node.harness.broker.sessions.get(client_id)) for node in nodes.running()]
    return [
        (number, session.record_epoch)
        for number, session in found
        if session is not None and session.connection is not None
    ]


def agree(nodes: SessionNodes, client_id: str) -> bool:
    """Whether the log and the nodes say the same of a client."""
    here = connections(nodes, client_id)
    if not nodes.has_record(client_id):
        return not here
    record = nodes.record(client_id)
    return here == ([(record.owner, record.epoch)] if record.is_connected else [])


def are_at_rest(nodes: SessionNodes) -> bool:
    """Whether no node keeps a session of another epoch than the log has."""
    for node in nodes.running():
        for client_id, session in node.harness.broker.sessions.items():
            if client_id in IDS and session.has_record and session.record_epoch != nodes.record(client_id).epoch:
                return False
    return all(agree(nodes, client_id) for client_id in IDS)


@pytest.mark.parametrize("expiry_s", [0, 3_600])
def test_a_hundred_takeovers_of_one_client_id(expiry_s: int) -> None:
    nodes = SessionNodes(seed=expiry_s + 1)
    rng = random.Random(expiry_s)
    clients: list[HarnessClient] = []
    for _ in range(100):
        packet = connect_packet("one", expiry_s=expiry_s, clean_start=rng.random() < 0.2)
        clients.append(nodes[rng.choice((1, 2, 3))].harness.connect(packet))
        nodes.run(rng.choice((0, 0, 50, 300)))
    nodes.run(8_000)
    nodes.until(lambda: agree(nodes, "one"))
    still_open = [client for client in clients if not client.closed]
    assert len(still_open) <= 1
    assert len(connections(nodes, "one")) == len(still_open)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_owner_after_everything(seed: int) -> None:
    """Connections, their ends, publishes, cut links, isolated and dead nodes at random; then rest."""
    nodes = SessionNodes(seed=seed + 1)
    rng = random.Random(seed)
    clients: list[HarnessClient] = []
    for _ in range(60):
        running = nodes.running()
        node = rng.choice(running)
        dice = rng.random()
        if dice < 0.55:
            packet = connect_packet(rng.choice(IDS), expiry_s=rng.choice((0, 3_600)), clean_start=rng.random() < 0.3)
            clients.append(node.harness.connect(packet))
        elif dice < 0.65 and clients:
            clients.pop(rng.randrange(len(clients))).drop()
        elif dice < 0.75 and clients:
            client = rng.choice(clients)
            if not client.closed and client.has_received and client.connection.session is not None:
                client.send(Publish(b"t", b"x", 1, packet_id=client.next_id()))
        elif dice < 0.82:
            one, other = rng.sample((1, 2, 3), 2)
            nodes.cut(one, other)
            nodes.cut(other, one)
        elif dice < 0.86:
            nodes.isolate(node.number)
        elif dice < 0.9 and len(running) == 3:
            node.kill()
        elif dice < 0.94:
            for dead in [one for one in nodes.nodes.values() if not one.running]:
                dead.start()
        else:
            nodes.heal()
        nodes.run(rng.choice((0, 50, 300, 1_500)))
    nodes.heal()
    for dead in [one for one in nodes.nodes.values() if not one.running]:
        dead.start()
    nodes.until(lambda: bool(nodes.groups()) and all(nodes.leader(group) for group in nodes.groups()), 30_000)
    nodes.run(10_000)
    nodes.until(lambda: are_at_rest(nodes), 30_000)


class Hopper:
    """A client that keeps its session: what it has of QoS 2 messages outlives its connections."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.held: set[int] = set()

    def take(self, client: HarnessClient) -> None:
        for packet in client.received():
            if isinstance(packet, Ack) and packet.kind == PUBREL:
                self.held.discard(packet.packet_id)
                client.send(Ack(PUBCOMP, packet.packet_id))
            elif isinstance(packet, Publish):
                message = client.resolve(packet)
                if message.qos == 1 or packet.packet_id not in self.held:
                    self.payloads.append(message.payload)
                self.held.add(packet.packet_id)
                client.send(Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_lost_while_a_session_moves_between_living_nodes(seed: int, qos: int) -> None:
    """Every message arrives while the client hops, also those that are published meanwhile; and each of them once."""
    nodes = SessionNodes(seed=seed + 1)
    rng = random.Random(seed)
    first = nodes.subscriber(1, "hopper", b"t", qos)
    client = first.client
    publishers = [nodes.clean(number, f"p{number}") for number in (1, 2, 3)]
    hopper = Hopper()
    sent = 0
    for _ in range(10):
        for _ in range(rng.randrange(5)):
            sent += 1
            nodes.send(rng.choice(publishers), b"t", b"%d" % sent, qos)
            pass_some(nodes, rng)
        if rng.random() < 0.7:
            hopper.take(client)
        if rng.random() < 0.3:
            client.drop()
            nodes.run(rng.choice((0, 50, 500)))
        fresh = nodes[rng.choice((1, 2, 3))].harness.connect(connect_packet("hopper"))
        while not fresh.has_received:
            sent += 1
            nodes.send(rng.choice(publishers), b"t", b"%d" % sent, qos)
            pass_some(nodes, rng)
            if rng.random() < 0.3 and not client.closed:
                hopper.take(client)
        connack = fresh.expect(Connack)
        assert connack.reason == 0
        assert connack.session_present
        client = fresh
        for publisher in publishers:
            release(publisher)
    wanted = {b"%d" % number for number in range(1, sent + 1)}
    for _ in range(20):
        nodes.run(250)
        hopper.take(client)
        for publisher in publishers:
            release(publisher)
    assert set(hopper.payloads) == wanted
    if qos == 2:
        assert len(hopper.payloads) == len(wanted)


def pass_some(nodes: SessionNodes, rng: random.Random) -> None:
    """Some turns of all nodes, or a little time."""
    if rng.random() < 0.5:
        nodes.run(nodes.step_ms)
    for _ in range(rng.randrange(4)):
        nodes.turn()


def release(publisher: Device) -> None:
    """Go on with the handshake of QoS 2."""
    publisher.look()
    for answer in publisher.answers:
        if isinstance(answer, Ack) and answer.kind == PUBREC:
            publisher.client.send(Ack(PUBREL, answer.packet_id))
    publisher.answers.clear()
