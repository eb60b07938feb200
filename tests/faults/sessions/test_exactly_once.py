"""Real QoS 2 clients whose node is killed while messages are under way, from them or to them: each counts once."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import MessageState

from faults.sessions.clients import WAIT_S, Connection
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess

LASTING_S = 3_600
ROUNDS = 2
MESSAGES = 200
DEATHS = 4

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("faults")]  # a cluster at a time


def test_each_message_of_a_publisher_comes_once_though_its_node_is_killed(tmp_path: Path) -> None:
    """3.1.1 keeps what is in flight in the client object, and sends it again wherever the client connects."""
    with NodeCluster(tmp_path / "nodes", 3, ["--log-level=warning"]) as cluster:
        cluster.wait_settled()
        cluster.create_topic("kept", shards=3, replication_factor=3)
        nodes = list(cluster.nodes)
        got: Counter[bytes] = Counter()
        reader = Connection("reader", paho.MQTTv311, LASTING_S, False, HOST, nodes[2].mqtt_port)
        reader.client.on_message = lambda _c, _u, message: got.update([bytes(message.payload)])
        assert reader.welcome()
        reader.client.subscribe([("kept/#", 2), ("plain/#", 2)])
        time.sleep(1)
        publisher = Connection("publisher", paho.MQTTv311, LASTING_S, False, HOST, nodes[0].mqtt_port)
        assert publisher.welcome()
        sent: list[paho.MQTTMessageInfo] = []
        for number in range(ROUNDS):
            for _ in range(MESSAGES):
                name = f"{'kept' if len(sent) % 2 else 'plain'}/{len(sent) % 5}"
                sent.append(publisher.client.publish(name, b"%d" % len(sent), 2))
            if number == 0:
                time.sleep(0.05)
                nodes[0].kill()
                go_on_at(publisher, nodes[1])
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until and not (all(one.is_published() for one in sent) and len(got) == len(sent)):
            time.sleep(0.05)
        assert all(one.is_published() for one in sent)
        assert got == Counter(b"%d" % number for number in range(len(sent)))
        publisher.leave()
        reader.leave()


def test_each_message_reaches_a_subscriber_once_though_its_node_is_killed_again_and_again(tmp_path: Path) -> None:
    """Paho gives a message to the program at PUBREL; 3.1.1 keeps what has no PUBREL in the client object."""
    with NodeCluster(tmp_path / "nodes", 3, ["--log-level=warning"]) as cluster:
        cluster.wait_settled()
        cluster.create_topic("kept", shards=3, replication_factor=3)
        nodes = list(cluster.nodes)
        got: Counter[bytes] = Counter()
        reader = Connection("reader", paho.MQTTv311, LASTING_S, False, HOST, nodes[2].mqtt_port)
        reader.client.on_message = lambda _c, _u, message: got.update([bytes(message.payload)])
        assert reader.welcome()
        reader.client.subscribe([("kept/#", 2), ("plain/#", 2)])
        time.sleep(1)
        publisher = Connection("publisher", paho.MQTTv311, LASTING_S, False, HOST, nodes[0].mqtt_port)  # it lives
        assert publisher.welcome()
        sent: list[paho.MQTTMessageInfo] = []
        at = 2
        for number in range(DEATHS):
            for _ in range(MESSAGES):
                name = f"{'kept' if len(sent) % 2 else 'plain'}/{len(sent) % 5}"
                sent.append(publisher.client.publish(name, b"%d" % len(sent), 2))
            seen = len(got)
            until = time.monotonic() + WAIT_S
            while len(got) < seen + 5 * (number + 1) and time.monotonic() < until:
                time.sleep(0.001)  # some have come, others are under way
            nodes[at].kill()
            at = 3 - at
            go_on_at(reader, nodes[at])
            nodes[3 - at].start()
            nodes[3 - at].wait_ready()
            cluster.wait_settled()
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until and not (all(one.is_published() for one in sent) and len(got) == len(sent)):
            time.sleep(0.05)
        assert all(one.is_published() for one in sent)
        time.sleep(1)  # for doubles
        doubles = {payload: times for payload, times in got.items() if times > 1}
        assert (doubles, len(sent) - len(got)) == ({}, 0)
        publisher.leave()
        reader.leave()


def go_on_at(connection: Connection, node: NodeProcess) -> None:
    """The client connects to another node, again and again until that lets it in."""
    until = time.monotonic() + WAIT_S
    while True:
        connection.client.loop_stop()
        connection.client._reset_sockets(sockpair_only=True)  # else paho leaks them
        remember_pubrels(connection.client)
        connection.client.connect(HOST, node.mqtt_port)
        if connection.welcome():
            return
        assert time.monotonic() < until, f"not let in\n{node.log_tail()}"
        time.sleep(0.1)


def remember_pubrels(client: paho.Client) -> None:
    """Paho 2.2 forgets at each attempt to connect that an earlier attempt was to repeat a PUBREL.

    After a refused CONNACK it would send the message anew, without DUP, under an id that the broker has released.
    """
    for message in client._out_messages.values():
        if message.state == MessageState.MQTT_MS_RESEND_PUBREL:
            message.state = MessageState.MQTT_MS_WAIT_FOR_PUBCOMP
