"""Client ids, sessions and wills in a cluster of real nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster.clients import Clients, next_message
from flockmq.client.mqtt import MqttError
from flockmq.errors import ApiError
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import SubscribeEntry, Will
from flockmq.mqtt.properties import Properties
from flockmq.testing.nodes import NodeCluster

TAKEOVERS = int(os.environ.get("FLOCKMQ_TAKEOVERS", "100"))


def lasting(seconds: int = 600) -> Properties:
    properties = Properties()
    properties.session_expiry_s = seconds
    return properties


async def test_a_client_id_has_one_owner_however_often_it_moves(tmp_path: Path, clients: Clients) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        current = await clients.connect(cluster.nodes[0], "device")
        for number in range(1, TAKEOVERS + 1):
            node = cluster.nodes[number % 3]
            following = await clients.connect(node, "device")
            with pytest.raises(MqttError) as ended:
                await next_message(current)
            assert ended.value.reason_code == reasons.SESSION_TAKEN_OVER
            current = following
        owners = [
            node.name
            for node in cluster.nodes
            if any(node.admin().connections(client_id_prefix="device", node=node.name))
        ]
        assert owners == [cluster.nodes[TAKEOVERS % 3].name]
        assert all(node.is_running for node in cluster.nodes)


async def test_a_session_moves_with_its_client(tmp_path: Path, clients: Clients) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        one, two, three = cluster.nodes
        device = await clients.connect(one, "device", properties=lasting(), clean_start=True)
        await device.subscribe(SubscribeEntry(b"orders/#", 1))
        await device.disconnect()
        publisher = await clients.connect(three, "publisher")
        for number in range(20):
            await publisher.publish(f"orders/{number}", b"%d" % number, qos=1)
        device = await clients.connect(two, "device", properties=lasting(), clean_start=False)
        assert device.connack.session_present
        received = [(await next_message(device)).payload for _ in range(20)]
        assert sorted(received, key=int) == [b"%d" % number for number in range(20)]  # of one name each: no order
        await publisher.publish("orders/more", b"here", qos=1)
        assert (await next_message(device)).payload == b"here"
        assert [session.client_id for session in one.admin().sessions(node=one.name)] == []
        await device.disconnect()


async def test_a_will_is_published_once_when_its_node_dies(tmp_path: Path, clients: Clients) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        cluster.wait_settled()  # a log that its founder alone has does not outlive that node
        one, two, three = cluster.nodes
        watchers = [await clients.connect(node, f"watcher{number}") for number, node in enumerate((two, three))]
        for watcher in watchers:
            await watcher.subscribe(SubscribeEntry(b"will/#", 1))
        will = Will(b"will/device", b"gone", 1, True, Properties())
        await clients.connect(one, "device", will=will)
        await clients.connect(one, "quiet")
        one.kill()
        for watcher in watchers:
            message = await next_message(watcher)
            assert (message.topic, message.payload) == ("will/device", b"gone")
        # Once only: what is published after it comes next.
        await watchers[0].publish("will/end", b"", qos=1)
        for watcher in watchers:
            assert (await next_message(watcher)).topic == "will/end"
        late = await clients.connect(three, "late")
        await late.subscribe(SubscribeEntry(b"will/#", 1))
        assert (await next_message(late)).payload == b"gone"


async def test_an_operator_reaches_a_client_through_any_node(tmp_path: Path, clients: Clients) -> None:
    with NodeCluster(tmp_path, 2) as cluster:
        one, two = cluster.nodes
        device = await clients.connect(one, "device", properties=lasting())
        two.admin().kick("device")
        with pytest.raises(MqttError) as ended:
            await next_message(device)
        assert ended.value.reason_code == reasons.ADMINISTRATIVE_ACTION
        assert [session.client_id for session in one.admin().sessions()] == ["device"]
        two.admin().delete_session("device")
        assert [session.client_id for session in one.admin().sessions()] == []
        with pytest.raises(ApiError, match="There is no session of client"):
            two.admin().delete_session("device")
