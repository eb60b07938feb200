"""Persistent sessions of real clients while their nodes die, stand still and lose their disks.

Every story: devices subscribe at QoS 1 to names of no declared topic and of a declared one, publishers at other nodes
send numbered messages, a fault happens, the devices come back. Held against what was promised:

| promise | check |
| --- | --- |
| every message with a PUBACK reaches every session that matched | ``await_all`` |
| the session is there when its client returns | session present = 1 |
| it is not there after a clean start or its expiry | session present = 0, and nothing comes |

The stories share a cluster, and each begins with all nodes up. ``FLOCKMQ_FAULTS_S`` (make faults) tells each story
more often.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from faults.sessions.clients import (
    LASTING_S,
    WAIT_S,
    Connection,
    Device,
    Load,
    MosquittoDevice,
    Promises,
    Publisher,
    await_all,
)
from faults.sessions.stage import DECLARED, Stage
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess

SECONDS = float(os.environ.get("FLOCKMQ_FAULTS_S", "0"))
ROUNDS = range(1 + int(SECONDS) // 20)
FAULTS = 15 if SECONDS else 3
SEED = int(os.environ.get("FLOCKMQ_SEED", "1"))
MESSAGES = 60
MARKS_S = 7.0
"""Longer than the time between two marks of how far sessions are."""
QUIET_S = 1.0
"""How long a device listens for what must not come, after a message that must."""
UNWANTED = 100_000
"""Number of the first message that must not come."""
EXPIRY_S = 3

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("faults")]  # a cluster at a time


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with NodeCluster(tmp_path_factory.mktemp("three"), 3, ["--log-level=warning"]) as cluster:
        cluster.wait_settled()
        cluster.create_topic(DECLARED, shards=3, replication_factor=3)
        yield cluster


@pytest.fixture(params=ROUNDS)
def stage(three: NodeCluster, request: pytest.FixtureRequest) -> Iterator[Stage]:
    name = request.node.originalname.removeprefix("test_")[:24]
    made = Stage(three, f"{name}{request.param}")
    made.heal()
    yield made
    made.close()


def restart(node: NodeProcess) -> None:
    node.start()
    node.wait_ready()


def test_one_node_dies_and_returns(tmp_path: Path) -> None:
    """kill -9 of the only node, while its clients are away, and while they are connected."""
    with NodeCluster(tmp_path, 1, ["--log-level=warning"]) as cluster:
        cluster.create_topic(DECLARED, shards=2)
        stage = Stage(cluster, "alone")
        (node,) = cluster.nodes
        devices = stage.devices_at(node)
        mosquitto = MosquittoDevice(tmp_path, "mosquitto", stage.filters)
        mosquitto.start(node)
        publisher = stage.publisher(node)
        publisher.publish(MESSAGES)
        stage.check(devices)
        stage.promises.kept.clear()  # mosquitto_sub may have subscribed later
        try:
            for _ in ROUNDS:
                devices[0].leave()
                devices[1].cut()
                publisher.publish(MESSAGES)
                node.kill()
                restart(node)
                publisher.publish(MESSAGES)
                stage.come_back(devices, node)
                stage.check(devices)
                publisher.publish(MESSAGES)
                node.kill()
                restart(node)
                stage.come_back(devices, node)
                publisher.publish(MESSAGES)
                stage.check(devices)
                await_all(mosquitto, stage.promises, stage.logs)
        finally:
            mosquitto.stop()
            stage.close()


def leave_wills(stage: Stage, node: NodeProcess) -> list[bytes]:
    """Clients with and without a session that lasts, and names of a declared topic and of none; the wills' payloads."""
    left: list[bytes] = []
    for topic in (f"{stage.story}/will", f"{DECLARED}/{stage.story}/will"):
        for expiry_s in (0, LASTING_S):
            name = f"{stage.story}-{len(left)}"
            made = Connection(name, paho.MQTTv5, expiry_s, True, HOST, node.mqtt_port, topic)
            assert made.welcome()
            left.append(name.encode())
    return left


def await_wills(stage: Stage, device: Device, left: list[bytes]) -> None:
    """All wills come, each once."""
    until = time.monotonic() + WAIT_S
    while not set(left) <= set(device.received):
        assert time.monotonic() < until, f"{set(left) - set(device.received)} did not come\n{stage.logs()}"
        time.sleep(0.1)
    time.sleep(QUIET_S)
    assert sorted(one for one in device.received if one in left) == sorted(left), stage.logs()


def test_all_nodes_die_with_clients_that_left_wills(stage: Stage) -> None:
    watcher, _ = stage.devices_at(stage.nodes[0])
    left = leave_wills(stage, stage.nodes[1])
    watcher.cut()
    for node in stage.nodes:
        node.kill()
    for node in stage.nodes:
        node.start()
    for node in stage.nodes:
        node.wait_ready()
    stage.come_back([watcher], stage.nodes[2])
    await_wills(stage, watcher, left)


def test_the_only_node_dies_with_clients_that_left_wills(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 1, ["--log-level=warning"]) as cluster:
        cluster.create_topic(DECLARED, shards=2)
        stage = Stage(cluster, "wills")
        (node,) = cluster.nodes
        watcher, _ = stage.devices_at(node)
        left = leave_wills(stage, node)
        watcher.cut()
        node.kill()
        restart(node)
        stage.come_back([watcher], node)
        await_wills(stage, watcher, left)
        stage.close()


def test_owner_dies_while_clients_are_away(stage: Stage) -> None:
    one, two, three = stage.nodes
    devices = stage.devices_at(one)
    publisher = stage.publisher(two, three)
    publisher.publish(MESSAGES)
    stage.check(devices)
    devices[0].leave()
    devices[1].cut()
    publisher.publish(MESSAGES)
    one.kill()
    publisher.publish(MESSAGES)
    stage.come_back(devices, two)
    stage.check(devices)
    publisher.publish(MESSAGES)
    stage.check(devices)
    restart(one)
    stage.come_back(devices, one)
    publisher.publish(MESSAGES)
    stage.check(devices)


def test_owner_dies_under_load(stage: Stage) -> None:
    one, two, three = stage.nodes
    devices = stage.devices_at(one)
    with Load([stage.publisher(two), stage.publisher(three, two), stage.publisher(one, two, three)]):
        time.sleep(1)
        one.kill()
        stage.come_back(devices, three)
        time.sleep(1)
    stage.check(devices)
    assert len(stage.promises.kept) >= MESSAGES


def test_what_was_not_acknowledged_comes_again(stage: Stage) -> None:
    """A device leaves gaps in what it acknowledges; marks pass meanwhile, then its owner dies."""
    one, two, three = stage.nodes
    devices = stage.devices_at(one)
    publisher = stage.publisher(two, three)
    publisher.publish(MESSAGES)
    stage.check(devices)
    for device in devices:
        device.acknowledges = lambda payload: int(payload) % 7 != 0
    publisher.publish(MESSAGES)
    time.sleep(MARKS_S)
    one.kill()
    for device in devices:
        device.acknowledges = lambda _: True
    stage.come_back(devices, two)
    publisher.publish(MESSAGES)
    stage.check(devices)


def test_nodes_are_restarted_in_turn(stage: Stage) -> None:
    """An operator restarts all nodes in order, under load; the devices go to the next node each time."""
    devices = stage.devices_at(stage.nodes[0])
    with Load([stage.publisher(*stage.nodes)]):
        for number, node in enumerate(stage.nodes):
            node.stop()
            for device in devices:
                if not device.is_connected:
                    stage.come_back([device], stage.nodes[(number + 1) % 3])
            restart(node)
            stage.cluster.wait(stage.cluster.sees_all, f"{node.name} to be back")
    for device in devices:
        if not device.is_connected:
            stage.come_back([device], stage.nodes[0])
    stage.check(devices)


def test_a_topic_is_declared_while_clients_are_away(stage: Stage) -> None:
    """Some messages of a name are captured, the later ones are in the log of the topic."""
    one, two, three = stage.nodes
    devices = stage.devices_at(one)
    publisher = stage.publisher(two, three)
    publisher.publish(MESSAGES)
    stage.check(devices)
    devices[0].leave()
    publisher.publish(MESSAGES)
    stage.cluster.create_topic(stage.story, shards=2, replication_factor=3)
    publisher.publish(MESSAGES)
    one.kill()
    publisher.publish(MESSAGES)
    stage.come_back(devices, three)
    stage.check(devices)


def test_owner_stands_still(stage: Stage) -> None:
    """An owner that wakes up has the old connections of clients that are elsewhere by now."""
    one, two, three = stage.nodes
    devices = stage.devices_at(one)
    publisher = stage.publisher(three)
    publisher.publish(MESSAGES)
    one.pause()
    former = [device.here for device in devices]
    stage.come_back(devices, two)
    publisher.publish(MESSAGES)
    stage.check(devices)
    one.resume()
    for connection in former:
        assert connection.gone.wait(WAIT_S), f"the old owner keeps a client that is elsewhere\n{stage.logs()}"
    stage.publisher(one).publish(MESSAGES)
    publisher.publish(MESSAGES)
    stage.check(devices)
    for device in devices:
        device.leave()
    publisher.publish(MESSAGES)
    stage.come_back(devices, one)
    stage.check(devices)


def test_owner_loses_its_disk(stage: Stage) -> None:
    """Its empty node joins as a new one (the first node would found a cluster of its own)."""
    one, two, three = stage.nodes
    devices = stage.devices_at(three)
    publisher = stage.publisher(one, two)
    publisher.publish(MESSAGES)
    devices[0].leave()
    three.kill()
    shutil.rmtree(three.folder / "data")
    publisher.publish(MESSAGES)
    restart(three)
    publisher.publish(MESSAGES)
    stage.come_back(devices, three)
    stage.check(devices)
    stage.publisher(three).publish(MESSAGES)
    stage.check(devices)


def test_three_connects_at_once(stage: Stage) -> None:
    """One of three connections with one client id stays."""
    device = stage.device("rival")
    device.connect(stage.nodes[0])
    device.subscribe(*stage.filters)
    found: list[Connection] = []

    def rival(node: NodeProcess) -> None:
        made = device.dial(node)
        if made is not None:
            found.append(made)

    with Load([stage.publisher(*stage.nodes)]):
        for _ in range(3):
            rivals = [threading.Thread(target=rival, args=(node,)) for node in stage.nodes]
            for thread in rivals:
                thread.start()
            for thread in rivals:
                thread.join()
    assert all(one.session_present for one in found), stage.logs()
    stage.cluster.wait(lambda: sum(not one.gone.is_set() for one in found) <= 1, "the rivals to be disconnected")
    stage.publisher(*stage.nodes).publish(MESSAGES)
    if all(one.gone.is_set() for one in found):
        device.connect(stage.nodes[1])
    else:
        [device.connection] = [one for one in found if not one.gone.is_set()]
    stage.check([device])
    assert any(not one.gone.is_set() for one in found), "no connection of three stays"


def test_all_nodes_die_at_once(stage: Stage) -> None:
    one, two, three = stage.nodes
    devices = stage.devices_at(one)
    publisher = stage.publisher(two, three)
    publisher.publish(MESSAGES)
    devices[0].leave()
    publisher.publish(MESSAGES)
    for node in stage.nodes:
        node.pause()
    for node in stage.nodes:
        node.kill()
    for node in stage.nodes:
        node.start()
    for node in stage.nodes:
        node.wait_ready()
    stage.come_back(devices, two)
    publisher.publish(MESSAGES)
    stage.check(devices)


def test_publisher_at_a_node_without_majority(stage: Stage) -> None:
    """Two of three nodes stand still: QoS 1 at the third is not acknowledged, or not lost."""
    one, two, three = stage.nodes
    devices = stage.devices_at(two)
    publisher = stage.publisher(one)
    publisher.publish(MESSAGES)
    for device in devices:
        device.leave()
    two.pause()
    three.pause()
    publisher.connect()
    publisher.send(MESSAGES)
    left = publisher.settle(5)
    print(f"two of three stand still: {MESSAGES - left} of {MESSAGES} answered, {publisher.refused} of them refused")
    two.resume()
    three.resume()
    publisher.settle()
    publisher.publish(MESSAGES)
    stage.come_back(devices, two)
    stage.check(devices)


def test_subscription_while_a_publishing_node_stands_still(stage: Stage) -> None:
    """A node that did not hear of a filter wakes up, and finds messages for it in its sockets."""
    one, two, _ = stage.nodes
    device = stage.device("late")
    device.connect(two)
    device.subscribe(f"{stage.story}/early/#")
    publisher = stage.publisher(one, below="/late")
    publisher.publish(1)
    one.pause()
    device.subscribe(f"{stage.story}/late/#")
    stage.promises.kept.clear()
    publisher.send(MESSAGES)
    device.cut()
    one.resume()
    publisher.settle()
    publisher.publish(MESSAGES)
    stage.come_back([device], two)
    stage.check([device])


def test_unsubscribe_and_clean_start(stage: Stage) -> None:
    one, two, three = stage.nodes
    device = stage.device("tidy")
    device.connect(one)
    kept, given_up = f"{stage.story}/kept", f"{stage.story}/given up"
    device.subscribe(f"{kept}/#", f"{given_up}/#")
    device.unsubscribe(f"{given_up}/#")
    one.kill()
    unwanted = Publisher(f"{stage.story}-u", [two], [f"{given_up}/{number}" for number in range(5)], Promises(UNWANTED))
    unwanted.publish(MESSAGES)
    unwanted.close()
    stage.publisher(two, below="/kept").publish(MESSAGES)
    stage.come_back([device], three)
    stage.check([device])
    time.sleep(QUIET_S)
    came = set(device.received)
    assert all(int(payload) < UNWANTED for payload in came), "messages of a filter that was taken back"
    restart(one)
    device.leave()
    device.expiry_s = 0
    assert not device.connect(two, clean=True), "a session after a clean start"
    device.leave()
    assert not device.connect(one), "a session that had ended"
    stage.publisher(three, below="/kept").publish(MESSAGES)
    time.sleep(QUIET_S)
    assert set(device.received) == came, "messages of a session that has ended"


def test_nodes_die_and_stand_still_in_turn(stage: Stage) -> None:
    """Devices go from node to node while the nodes fail, each at any moment of its work."""
    rng = random.Random(f"{SEED} {stage.story}")
    devices = stage.devices_at(stage.nodes[0])
    publishers = [stage.publisher(*stage.nodes[number:], *stage.nodes[:number]) for number in range(3)]
    with Load(publishers):
        for _ in range(FAULTS):
            node = rng.choice(stage.nodes)
            is_pause = rng.random() < 0.4
            node.pause() if is_pause else node.kill()
            others = [one for one in stage.nodes if one is not node]
            for device in devices:
                rng.choice((device.cut, device.leave))()
                time.sleep(rng.choice((0, 0, 0.3)))
                stage.come_back([device], rng.choice(others))
            node.resume() if is_pause else restart(node)
            time.sleep(rng.choice((0, 1)))
            for device in devices:
                if not device.is_connected or rng.random() < 0.3:
                    stage.come_back([device], rng.choice(stage.nodes))
    stage.check(devices)
    print(f"{len(stage.promises.kept)} promised, {[len(one.received) for one in devices]} received")


def test_expiry_after_the_death_of_the_owner(stage: Stage) -> None:
    """A session goes its expiry after its node was found dead, not before; one that lasts longer stays."""
    one, two, three = stage.nodes
    devices = [stage.device(f"brief{number}", expiry_s=EXPIRY_S) for number in range(12)]
    lasting = stage.device("lasting")
    for device in [lasting, *devices]:
        device.connect(one)
        device.subscribe(*stage.filters)
    time.sleep(EXPIRY_S + 1)  # an open connection keeps its session
    stage.publisher(two).publish(MESSAGES)
    one.kill()
    present = []
    for device in devices:
        present.append(device.connect(three))
        if not present[-1]:
            break
        time.sleep(EXPIRY_S / 3)
    assert present[0], f"the session went before its time\n{stage.logs()}"
    assert not present[-1], f"the sessions stay: {present}\n{stage.logs()}"
    stage.come_back([lasting], three)
    stage.check([devices[0], lasting])
