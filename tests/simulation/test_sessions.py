"""Client ids in a cluster: whatever happens, in the end each has one owner and at most one connection."""

from __future__ import annotations

import random

import pytest

from flockmq.mqtt.packets import Connack, Disconnect, Publish
from flockmq.testing.harness_client import HarnessClient
from session_cluster import SessionCluster

SEEDS = range(20)
RESTLESS = pytest.mark.xfail(strict=True, reason="the cluster does not come to rest; cause not known")


def connack(client: HarnessClient) -> Connack | None:
    for packet in client.received():
        if isinstance(packet, Connack):
            return packet
    return None


def accepted(cluster: SessionCluster, client: HarnessClient, ms_max: int = 10_000) -> Connack:
    """Wait for a CONNACK."""
    end = cluster.now + ms_max
    while cluster.now < end:
        cluster.step()
        found = connack(client)
        if found is not None:
            return found
    raise AssertionError("No CONNACK came")


@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_takeovers_of_one_client_id(seed: int) -> None:
    cluster = SessionCluster(seed, 5, delay_ms=(1, 10))
    cluster.settle()
    rng = random.Random(seed)
    nodes = list(cluster.nodes.values())
    count = 0
    rounds = 1_000 if seed == 0 else 100
    for _ in range(rounds):
        cluster.connect(rng.choice(nodes), "one")
        count += 1
        for _ in range(rng.randrange(40)):
            cluster.step()
        assert len(cluster.connected("one")) <= 5
    cluster.settle()
    assert count == rounds
    cluster.check(["one"])
    assert len(cluster.connected("one")) == 1
    assert len(cluster.owners("one")) == 1


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=RESTLESS) if seed == 17 else seed for seed in SEEDS])
def test_one_owner_after_everything(seed: int) -> None:
    """Connections, disconnections, publishes, broken links, partitions, deaths and restarts at random; then rest."""
    cluster = SessionCluster(seed, 3 + seed % 3)
    rng = random.Random(seed)
    ids = [f"client-{number}" for number in range(6)]
    clients: list[HarnessClient] = []
    cluster.run(200)
    for _ in range(150):
        living = cluster.living()
        node = rng.choice(living)
        dice = rng.random()
        if dice < 0.5:
            clean = rng.random() < 0.2
            clients.append(cluster.connect(node, rng.choice(ids), clean=clean, expiry_s=rng.choice([0, 3600, 3600])))
        elif dice < 0.6 and clients:
            clients.pop(rng.randrange(len(clients))).drop()
        elif dice < 0.75:
            cluster.publish(node, b"t/" + rng.choice(ids).encode(), b"x", rng.randrange(3))
        elif dice < 0.8:
            session = rng.choice(list(node.sessions.values())) if node.sessions else None
            if session is not None and isinstance(
                handle := session.connection.handle if session.connection is not None else None, HarnessClient
            ):
                handle.subscribe(b"t/" + session.client_id.encode(), rng.randrange(3))
        elif dice < 0.86 and len(living) > 1:
            one, other = rng.sample([node.node_id for node in living], 2)
            cluster.cut(one, other)
            cluster.tell_later(100, 4_000, "up", one, other)
        elif dice < 0.87 and len(living) > 1:
            one, other = rng.sample([node.node_id for node in living], 2)
            cluster.tell_later(0, 10, "deaf", one, other)
            cluster.tell_later(1_000, 4_000, "hear", one, other)
        elif dice < 0.89 and len(living) > 2:
            cluster.kill(node.node_id)
        elif dice < 0.91:
            dead = [node for node in cluster.nodes.values() if not node.alive]
            if dead:
                cluster.start(rng.choice(dead).node_id)
        elif dice < 0.93:
            names = [node.node_id for node in living]
            rng.shuffle(names)
            middle = rng.randrange(len(names) + 1)
            cluster.partition([names[:middle], names[middle:]], rng.choice([0, 3_000]))
        elif dice < 0.96:
            cluster.heal()
        cluster.run(rng.choice([5, 20, 100, 700]))
    cluster.heal()
    cluster.run(6_000)
    cluster.settle()
    cluster.check(ids)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_lost_while_a_session_moves(seed: int, qos: int) -> None:
    """Every message arrives while the client hops between living nodes; at QoS 2 once."""
    cluster = SessionCluster(seed, 4, delay_ms=(1, 20 if seed % 2 else 60))
    cluster.settle()
    rng = random.Random(seed)
    nodes = list(cluster.nodes.values())
    client = cluster.connect(nodes[0], "hopper")
    assert accepted(cluster, client).reason == 0
    client.subscribe(b"t", qos)
    cluster.run(200)
    got: list[bytes] = []
    sent = 0
    present = 0
    for _ in range(12):
        for _ in range(rng.randrange(6)):
            sent += 1
            cluster.publish(rng.choice(nodes), b"t", b"%d" % sent, qos)
            for _ in range(rng.randrange(3)):
                cluster.step()
        if not client.closed:
            got += [message.payload for message in client.consume()]
        if rng.random() < 0.4:
            client.drop()
            cluster.run(rng.randrange(50))
        fresh = cluster.connect(rng.choice(nodes), "hopper")
        for _ in range(400):
            sent += 1
            cluster.publish(rng.choice(nodes), b"t", b"%d" % sent, qos)
            cluster.step()
            if not client.closed:
                got += [message.payload for message in client.consume()]
            answers = fresh.received() if fresh.connection.phase >= 2 else []
            if answers:
                first = answers[0]
                assert isinstance(first, Connack)
                assert first.reason == 0
                present += first.session_present
                for packet in answers[1:]:
                    assert isinstance(packet, Publish)
                    got.append(packet.payload)
                    fresh.acknowledge(packet)
                got += [message.payload for message in fresh.consume()]
                break
        client = fresh
    cluster.settle()
    got += [message.payload for message in client.consume()]
    assert present == 12
    wanted = [b"%d" % number for number in range(1, sent + 1)]
    assert sorted(set(got), key=int) == wanted
    if qos == 2:
        assert len(got) == len(wanted)


def test_a_taken_over_client_is_told() -> None:
    cluster = SessionCluster(1, 3)
    cluster.settle()
    one, two, _ = cluster.nodes.values()
    first = cluster.connect(one, "x")
    assert not accepted(cluster, first).session_present
    second = cluster.connect(two, "x")
    assert accepted(cluster, second).session_present
    farewell = [packet for packet in first.received() if isinstance(packet, Disconnect)]
    assert [packet.reason for packet in farewell] == [0x8E]
    assert first.closed
    cluster.settle()
    cluster.check(["x"])
    assert one.harness.broker.stats.takeovers == 1
