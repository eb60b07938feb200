"""The control room: receives everything, checks it against the ledger, sends commands and waits for the answers."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from typing import Final

from flockmq.client.load.fleet.catalogue import CONTROL_TOPIC, METRICS
from flockmq.client.load.fleet.device import Device
from flockmq.client.load.fleet.ledger import Ledger
from flockmq.client.load.histogram import Histogram
from flockmq.client.mqtt import Message, MqttClient, MqttError, Options
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.mqtt.properties import Properties

SYS_PREFIX: Final = "$SYS/broker/"
EVENTS_MAX: Final = 50
COMMANDS: Final = ("set-speed", "calibrate", "open-valve", "report")


class ControlRoom:
    """One MQTT 5 client that hears the whole plant."""

    def __init__(self, client: MqttClient, ledger: Ledger) -> None:
        self.latency = Histogram()
        self.command_latency = Histogram()
        self.topics: Counter[str] = Counter()
        """Messages by device, as the filter that matches them, since the last look."""
        self.broker: dict[str, str] = {}
        """What the broker says about itself."""
        self.events: list[str] = []
        self._client = client
        self._ledger = ledger
        self._asked_ns: dict[int, int] = {}
        self._qos = {metric.name: metric.qos for metric in METRICS}

    @classmethod
    async def open(cls, options: Options, ledger: Ledger) -> ControlRoom:
        """Connect and subscribe to the plant, to answers and to the broker's own figures."""
        client = await MqttClient.connect(options)
        room = cls(client, ledger)
        await client.subscribe(
            SubscribeEntry(b"plant/#", 2),
            SubscribeEntry(CONTROL_TOPIC.encode(), 1),
            SubscribeEntry(SYS_PREFIX.encode() + b"#", 0),
        )
        return room

    async def listen(self) -> None:
        """Take in messages until the connection ends."""
        async for message in self._client.messages():
            self._take(message, time.monotonic_ns())

    async def command(self, device: Device, rng: random.Random) -> None:
        """Send one command; its answer comes when the device is there."""
        number = self._ledger.commands_sent + 1
        self._ledger.ask(device.machine.client_id, number)
        command = {"id": number, "command": rng.choice(COMMANDS), "reply_to": CONTROL_TOPIC}
        properties = Properties()
        properties.response_topic = CONTROL_TOPIC.encode()
        properties.correlation_data = number.to_bytes(4, "big")
        if device.online:
            self._asked_ns[number] = time.monotonic_ns()
        payload = json.dumps(command).encode()
        await self._client.publish(device.machine.topic("command"), payload, qos=1, properties=properties)

    async def close(self) -> None:
        """Leave."""
        await self._client.disconnect()

    def note(self, text: str) -> None:
        """Remember something worth showing, for a while."""
        self.events.append(text)
        del self.events[:-EVENTS_MAX]

    def _take(self, message: Message, now_ns: int) -> None:
        if message.topic.startswith(SYS_PREFIX):
            self.broker[message.topic[len(SYS_PREFIX) :]] = message.payload.decode(errors="replace")
            return
        content = json.loads(message.payload)
        last = message.topic.rpartition("/")[2]
        if last == "status":
            self._status(message.topic, content["state"])
        elif message.topic == CONTROL_TOPIC:
            self._answered(content["id"], now_ns)
        elif last in self._qos:
            self.topics[message.topic.removesuffix(last) + "#"] += 1
            self.latency.record([now_ns - content["sent_ns"]])
            self._ledger.receive(message.topic, self._qos[last], content["seq"])

    def _status(self, topic: str, state: str) -> None:
        device = topic.rpartition("/")[0]
        if state == "lost":
            self._ledger.wills_seen += 1
            self.note(f"{device} dropped off: its will was published")

    def _answered(self, number: int, now_ns: int) -> None:
        asked_ns = self._asked_ns.pop(number, 0)
        if self._ledger.answer(number) and asked_ns:
            self.command_latency.record([now_ns - asked_ns])


async def count_retained(options: Options, topic_filter: str, expected: int, timeout_s: float = 5.0) -> int:
    """Subscribe as a late comer and count the retained messages that are there already."""
    client = await MqttClient.connect(options)
    found: set[str] = set()

    async def collect() -> None:
        async for message in client.messages():
            if message.retain:
                found.add(message.topic)
            if len(found) >= expected:
                return

    try:
        await client.subscribe(SubscribeEntry(topic_filter.encode(), 1))
        async with asyncio.timeout(timeout_s):
            await collect()
    except (TimeoutError, MqttError):
        pass
    finally:
        await client.disconnect()
    return len(found)
