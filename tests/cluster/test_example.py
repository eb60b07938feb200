"""The example of the EMQ X document with three real nodes: same trie, same route table, same trace."""

from __future__ import annotations

import json
from pathlib import Path

from cluster.clients import Clients, command, next_message
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.testing.nodes import NodeCluster

SUBSCRIPTIONS = {"client1": ("t/+/x", "t/+/y"), "client2": ("t/#",), "client3": ("t/+/x", "t/a")}


async def test_the_example_of_the_document(tmp_path: Path, clients: Clients) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        subscribers = [await clients.connect(node, f"client{number}") for number, node in enumerate(cluster.nodes, 1)]
        for client, filters in zip(subscribers, SUBSCRIPTIONS.values(), strict=True):
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
        await subscribers[0].publish("t/a", b"hello", qos=1)
        for client, topic in ((subscribers[1], "t/a"), (subscribers[2], "t/a")):
            message = await next_message(client)
            assert (message.topic, message.payload, message.qos) == (topic, b"hello", 1)
        assert json.loads(command(cluster.nodes[1], "explain", "u/b", "--json"))["steps"][1:] == []
