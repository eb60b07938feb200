"""A real QoS 2 publisher whose node is killed while its messages are under way: each is stored once."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from faults.sessions.clients import WAIT_S, Connection
from flockmq.testing.nodes import HOST, NodeCluster

LASTING_S = 3_600
ROUNDS = 2
MESSAGES = 200

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
                publisher.client.loop_stop()
                publisher.client._reset_sockets(sockpair_only=True)  # else paho leaks them
                publisher.client.connect(HOST, nodes[1].mqtt_port)
                publisher.client.loop_start()
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until and not (all(one.is_published() for one in sent) and len(got) == len(sent)):
            time.sleep(0.05)
        assert all(one.is_published() for one in sent)
        assert got == Counter(b"%d" % number for number in range(len(sent)))
        publisher.leave()
        reader.leave()
