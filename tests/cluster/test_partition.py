"""Real nodes in network namespaces: split, go on apart, heal, and are one again without a restart. Needs root."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from cluster.clients import Clients, next_message
from cluster.namespaces import inside
from flockmq.client.mqtt import MqttClient
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.testing.nodes import NodeProcess
from integration.support.programs import network, plug

SPLIT_S = float(os.environ.get("FLOCKMQ_SPLIT_S", "4"))
WAIT_S = 40.0


class Net:
    """Three nodes, each in a namespace, on one switch."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.names = names
        cookie = {"FLOCKMQ_COOKIE": secrets.token_hex(32)}
        self.nodes = [
            NodeProcess(
                folder / f"n{number}",
                f"n{number}@10.9.0.{number}",
                (1883, 18083, 16000),
                [f"--host=10.9.0.{number}", *(["--join=10.9.0.1"] if number > 1 else [])],
                cookie,
                ("ip", "netns", "exec", name),
            )
            for number, name in enumerate(names, 1)
        ]

    def view(self, number: int) -> dict[str, str]:
        with inside(self.names[number]):
            members = self.nodes[number].admin(f"10.9.0.{number + 1}").cluster().members
        return {
            member.name: member.state if member.linked or member.state != "alive" else "not linked"
            for member in members
        }

    def views(self) -> list[dict[str, str]]:
        return [self.view(number) for number in range(len(self.names))]

    def routes(self, number: int) -> dict[str, list[str]]:
        with inside(self.names[number]):
            return {one.filter: one.nodes for one in self.nodes[number].admin(f"10.9.0.{number + 1}").routes()}

    def retained(self, number: int) -> dict[str, bytes | str]:
        with inside(self.names[number]):
            admin = self.nodes[number].admin(f"10.9.0.{number + 1}")
            return {one.topic: admin.retained_message(one.topic).payload_base64 for one in admin.retained()}

    def have_routes(self, wanted: dict[str, list[str]]) -> bool:
        return all(self.routes(number) == wanted for number in range(len(self.names)))

    def is_one(self) -> bool:
        everybody = dict.fromkeys((node.name for node in self.nodes), "alive")
        return all(view == everybody for view in self.views())

    def wait(self, what: str, condition: Callable[[], bool]) -> float:
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > WAIT_S:
                logs = "\n".join(f"--- {node.name}\n{node.log_tail()}" for node in self.nodes)
                pytest.fail(f"waited in vain for {what}: {self.views()}\n{logs}")
            time.sleep(0.1)
        return time.monotonic() - began


async def publish_surely(client: MqttClient, topic: str, payload: bytes) -> None:
    """Publish at QoS 1 as soon as the client's node has heard of a majority again."""
    async with asyncio.timeout(WAIT_S):
        while await client.publish(topic, payload, qos=1) >= 0x80:  # noqa: ASYNC110  (the node is asked)
            await asyncio.sleep(0.1)


@contextmanager
def three_nodes(folder: Path) -> Iterator[Net]:
    with network(3) as names:
        net = Net(folder, names)
        try:
            for node in net.nodes:
                node.start()
            for node in net.nodes:
                node.wait_ready()
            net.wait("one cluster", net.is_one)
            yield net
        finally:
            for node in net.nodes:
                node.close()


@pytest.mark.parametrize("apart", [(2,), (0, 1, 2)], ids=["two and one", "one and one and one"])
async def test_a_split_heals_by_itself_twice(tmp_path: Path, clients: Clients, apart: tuple[int, ...]) -> None:
    with three_nodes(tmp_path) as net:
        subscribers = []
        for number, name in enumerate(net.names):
            with inside(name):
                client = await clients.connect(net.nodes[number], f"client{number}", host=f"10.9.0.{number + 1}")
            await client.subscribe(SubscribeEntry(f"to/{number}".encode(), 1))
            subscribers.append(client)
        await subscribers[0].publish("kept/gone", b"x", qos=1, retain=True)
        for turn in range(2):
            for number in apart:
                plug(net.names, number, into=False)
            net.wait("the split to be seen", lambda: all("dead" in view.values() for view in net.views()))
            # Life goes on in each part, at QoS 0: one without a majority can't know of persistent sessions elsewhere.
            for number, client in enumerate(subscribers):
                await client.subscribe(SubscribeEntry(f"turn{turn}/{number}".encode(), 1))
                await client.publish(f"kept/{number}", f"{turn}".encode(), retain=True)
                await client.publish("kept/all", f"{turn} {number}".encode(), retain=True)
            await subscribers[-1].publish("kept/gone", b"", retain=True)
            time.sleep(SPLIT_S)  # noqa: ASYNC251  (a split of this length is what is tested)
            for number in apart:
                plug(net.names, number, into=True)
            took = net.wait("one view again", net.is_one)
            print(f"{len(apart)} apart, turn {turn + 1}: one view again {took:.1f} s after the heal")
            wanted = {
                **{f"to/{number}": [node.name] for number, node in enumerate(net.nodes)},
                **{f"turn{t}/{n}": [net.nodes[n].name] for t in range(turn + 1) for n in range(3)},
            }
            net.wait("the routes", partial(net.have_routes, wanted))
            net.wait(
                "the same retained messages",
                lambda: net.retained(0) == net.retained(1) == net.retained(2) and "kept/gone" not in net.retained(0),
            )
            assert set(net.retained(0)) == {"kept/0", "kept/1", "kept/2", "kept/all"}
            for number in range(3):
                await publish_surely(subscribers[(number + 1) % 3], f"to/{number}", b"%d" % turn)
            for client in subscribers:
                assert (await next_message(client)).payload == b"%d" % turn
        assert all(node.is_running for node in net.nodes)
