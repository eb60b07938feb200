"""The example of the EMQ X document with three real nodes: same trie, same route table, same trace."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from flockmq.client.mqtt import MqttClient, Options
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess

SUBSCRIPTIONS = {"client1": ("t/+/x", "t/+/y"), "client2": ("t/#",), "client3": ("t/+/x", "t/a")}


async def connect(node: NodeProcess, client_id: str, **changes: object) -> MqttClient:
    return await MqttClient.connect(Options(host=HOST, port=node.mqtt_port, client_id=client_id, **changes))  # type: ignore[arg-type]


def command(node: NodeProcess, *words: str) -> str:
    environment = {"PATH": "", "FLOCKMQ_CREDENTIALS": str(node.folder / "credentials.toml")}
    done = subprocess.run(
        [sys.executable, "-m", "flockmq", *words, f"--server=http://{HOST}:{node.api_port}"],
        capture_output=True,
        check=False,
        env=environment,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_the_example_of_the_document(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        clients = [await connect(node, f"client{number}") for number, node in enumerate(cluster.nodes, 1)]
        for client, filters in zip(clients, SUBSCRIPTIONS.values(), strict=True):
            for topic_filter in filters:
                await client.subscribe(SubscribeEntry(topic_filter.encode(), 1))
        names = [node.name for node in cluster.nodes]
        table = {
            "t/#": [names[1]],
            "t/+/x": [names[0], names[2]],
            "t/+/y": [names[0]],
            "t/a": [names[2]],
        }
        # SUBACK says that every node knows the route: no waiting here.
        for node in cluster.nodes:
            assert {route.filter: route.nodes for route in node.admin().routes()} == table
        trace, _, others = command(cluster.nodes[0], "explain", "t/a", "--from", "client1").partition("\n\n")
        assert trace.splitlines() == [
            f"client1->{names[0]}: Publish[t/a]",
            f"{names[0]}-->{names[1]}: Route[t/#]",
            f"{names[0]}-->{names[2]}: Route[t/a]",
            f"{names[1]}-->client2: Deliver[t/#]",
            f"{names[2]}-->client3: Deliver[t/a]",
        ]
        assert "ACLs are not considered" in others
        listed = command(cluster.nodes[2], "route", "list").splitlines()
        assert [line.split(" -> ")[0].strip() for line in listed] == sorted(table)
        assert [line.split(" -> ")[1] for line in listed] == [", ".join(table[name]) for name in sorted(table)]
        await clients[0].publish("t/a", b"hello", qos=1)
        for client, topic in ((clients[1], "t/a"), (clients[2], "t/a")):
            message = await asyncio.wait_for(anext(client.messages()), 10)
            assert (message.topic, message.payload, message.qos) == (topic, b"hello", 1)
        assert json.loads(command(cluster.nodes[1], "explain", "u/b", "--json"))["steps"][1:] == []
        for client in clients:
            await client.disconnect()
