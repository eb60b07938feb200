"""Retained messages on two real nodes: the same everywhere, also after one was killed and missed changes."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from flockmq.client.mqtt import MqttClient, Options
from flockmq.mqtt.packets import SubscribeEntry
from integration.support.node import until
from integration.support.process import FREE_PORTS, BrokerProcess

HERE = {"FLOCKMQ_CLUSTER__HOST": "127.0.0.1", "FLOCKMQ_CLUSTER__PORT": "0", "FLOCKMQ_CLUSTER__PROFILE": "local"}


def start(folder: Path, name: str, *join: str) -> BrokerProcess:
    node = ("--name", f"{name}@127.0.0.1", "--data-dir", str(folder / name))
    return BrokerProcess(folder, "--allow-anonymous", *FREE_PORTS, *node, *join, **HERE)


def contact(broker: BrokerProcess) -> tuple[str, str]:
    return ("--join", f"127.0.0.1:{broker.ports()['cluster']['port']}")


async def publish(broker: BrokerProcess, messages: dict[str, bytes], qos: int = 1) -> None:
    async with await MqttClient.connect(Options(port=broker.port(), client_id="writer")) as writer:
        for topic, payload in messages.items():
            await writer.publish(topic, payload, qos=qos, retain=True)


async def has(broker: BrokerProcess, expected: dict[str, bytes]) -> None:
    """Wait until a new subscriber to everything gets exactly these; a marker of this node's own ends each look."""
    async with await MqttClient.connect(Options(port=broker.port(), client_id="looker")) as looker:
        while True:
            await looker.subscribe(SubscribeEntry(b"t/#", 1))
            await looker.subscribe(SubscribeEntry(b"looker/end", 1))
            await looker.publish("looker/end", b"", qos=1)
            found: dict[str, bytes] = {}
            async for message in looker.messages():
                if message.topic == "looker/end":
                    break
                found[message.topic] = message.payload
            if found == expected:
                return
            await looker.unsubscribe("t/#", "looker/end")


async def test_two_nodes_have_the_same_also_after_a_kill(tmp_path: Path) -> None:
    many = {f"t/{number}": b"%d" % number for number in range(300)}
    with start(tmp_path, "one") as one:
        async with asyncio.timeout(50):
            await publish(one, many)
            join = contact(one)
            with start(tmp_path, "two", *join) as two:
                await has(two, many)  # those from before it came
                await publish(two, {"t/0": b"two", "t/1": b""})
                many |= {"t/0": b"two"}
                del many["t/1"]
                await has(one, many)
                log = tmp_path / "two" / "retained.db-wal"
                await until(lambda: log.exists() and b"two" in log.read_bytes())
                two.stop(signal.SIGKILL)
            await publish(one, {"t/2": b"", "t/3": b"one"}, 0)  # one of two nodes is no majority: it takes QoS 0 alone
            many |= {"t/3": b"one"}
            del many["t/2"]
            with start(tmp_path, "two", *join) as two:
                await has(two, many)
                await has(one, many)
