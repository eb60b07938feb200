"""One simulated device: connects with a will, measures, obeys commands, sometimes drops off and comes back.

```
 connect (session kept, will "lost") --> status "online", retained --> measure ... measure --> drop --> wait --+
    ^                                       commands --> answers, kept until the broker has them               |
    +----------------------------------------------------------------------------------------------------------+
```
It drops off only between two of its own messages, so every number it used is either acknowledged or not sent. What
was sent *to* it meanwhile waits in its session.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from flockmq.client.load.fleet.catalogue import CONTROL_TOPIC, METRICS, Machine, next_value
from flockmq.client.load.fleet.ledger import Ledger
from flockmq.client.mqtt import Message, MqttClient, MqttError, Options
from flockmq.mqtt.packets import SubscribeEntry, Will
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reasons import UNSPECIFIED_ERROR

SESSION_EXPIRY_S: Final = 600
AWAY_S: Final = (0.8, 2.5)
"""Shortest and longest time a device stays away after it dropped off."""
CONNECT_S_MAX: Final = 20.0
RETRY_S: Final = 0.2


class FallibleClient(MqttClient):
    """A client whose network can fail."""

    def drop(self) -> None:
        """Cut the connection: no DISCONNECT, so the broker publishes the will."""
        self._writer.transport.abort()


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that the broker does not have yet."""

    topic: str
    payload: bytes
    properties: Properties | None


class Device:
    """A machine on the network."""

    def __init__(
        self, machine: Machine, ledger: Ledger, options: Options, ports: list[int], interval_s: float, seed: int
    ) -> None:
        self.machine = machine
        self.node = machine.index % len(ports)
        """Which of the nodes it is connected to."""
        self.online = False
        self.met = False
        """Whether it was there once: its session exists, so what is sent to it from now on must reach it."""
        self._ledger = ledger
        self._base = options
        self._ports = ports
        self._interval_s = interval_s / machine.pace
        self._rng = random.Random(seed)  # noqa: S311 - a simulation, repeatable on purpose
        self._values = {metric.name: metric.start for metric in METRICS}
        self._numbers = dict.fromkeys((metric.name for metric in METRICS), 0)
        self._answers: deque[Answer] = deque()
        self._answer_due = asyncio.Event()
        self._dropping = asyncio.Event()
        self._stopping = asyncio.Event()

    def drop(self) -> None:
        """Fall off the network at the next opportunity."""
        if self.online:
            self._dropping.set()

    def stop(self) -> None:
        """Leave in order."""
        self._stopping.set()
        self._dropping.set()

    async def run(self, gate: asyncio.Semaphore) -> None:
        """Live until stopped; ``gate`` keeps a whole fleet from connecting at the same instant."""
        while not self._stopping.is_set():
            async with gate:
                client = await self._connect()
            try:
                await self._live(client)
            except MqttError:
                if self._stopping.is_set():
                    return
                self._node_died()
                continue
            if not self._stopping.is_set():
                await asyncio.sleep(self._rng.uniform(*AWAY_S))

    async def _connect(self) -> FallibleClient:
        """Connect to the own node, or to the next one that answers; MqttError when none has for a while."""
        until = time.monotonic() + CONNECT_S_MAX
        while True:
            try:
                client = await FallibleClient.connect(self._options())
            except MqttError:
                if len(self._ports) == 1 or time.monotonic() > until:
                    raise
                self.node = (self.node + 1) % len(self._ports)
                await asyncio.sleep(RETRY_S)
                continue
            assert isinstance(client, FallibleClient)
            return client

    def _node_died(self) -> None:
        """What was in the dead node's hands is not promised; the next node does."""
        if len(self._ports) == 1:
            raise MqttError("The broker has closed the connection.")
        self._ledger.node_died(self.machine.client_id, [self.machine.topic(metric.name) for metric in METRICS])
        self.met = False
        self.node = (self.node + 1) % len(self._ports)

    async def _live(self, client: FallibleClient) -> None:
        self._dropping.clear()
        if not client.connack.session_present:
            if self.met:  # its session was on a node that died while the device was away
                self._ledger.node_died(self.machine.client_id, [])
            await client.subscribe(SubscribeEntry(self.machine.topic("command").encode(), 1))
        self.met = True
        listening = asyncio.create_task(self._listen(client))
        answering = asyncio.create_task(self._answer(client))
        try:
            await self._say(client, "online")
            self.online = True
            await self._measure(client)
            if self._stopping.is_set():
                await self._say(client, "stopped")
            else:
                self._ledger.wills_due += 1
                client.drop()
                await asyncio.gather(listening, return_exceptions=True)
        finally:
            self.online = False
            with contextlib.suppress(MqttError):
                await client.disconnect()
            answering.cancel()
            await asyncio.gather(listening, answering, return_exceptions=True)

    async def _measure(self, client: FallibleClient) -> None:
        """Publish all quantities, wait, and so on, until something ends it."""
        while not self._dropping.is_set():
            for metric in METRICS:
                number = self._numbers[metric.name] + 1
                value = self._values[metric.name] = next_value(metric, self._values[metric.name], self._rng)
                payload = {"seq": number, "value": value, "unit": metric.unit, "sent_ns": time.monotonic_ns()}
                topic = self.machine.topic(metric.name)
                reason = await client.publish(topic, json.dumps(payload).encode(), qos=metric.qos)
                if reason >= UNSPECIFIED_ERROR:
                    continue  # refused, as while a log has no leader: the next value has this number
                self._numbers[metric.name] = number
                self._ledger.confirm(topic, metric.qos, number)
            try:
                async with asyncio.timeout(self._interval_s * self._rng.uniform(0.7, 1.3)):
                    await self._dropping.wait()
            except TimeoutError:
                continue

    async def _say(self, client: FallibleClient, state: str) -> None:
        payload = json.dumps({"state": state}).encode()
        await client.publish(self.machine.topic("status"), payload, qos=1, retain=True)

    async def _listen(self, client: FallibleClient) -> None:
        try:
            async for message in client.messages():
                self._answers.append(_answer_to(message))
                self._answer_due.set()
        except MqttError:
            return  # dropped; what came before was taken

    async def _answer(self, client: FallibleClient) -> None:
        """Publish answers; one leaves the queue only when the broker has it."""
        try:
            while True:
                while self._answers:
                    answer = self._answers[0]
                    await client.publish(answer.topic, answer.payload, qos=1, properties=answer.properties)
                    self._answers.popleft()
                self._answer_due.clear()
                await self._answer_due.wait()
        except MqttError:
            return

    def _options(self) -> Options:
        will = Will(self.machine.topic("status").encode(), b'{"state": "lost"}', 1, True)
        properties = None
        if self.machine.version == 5:
            properties = Properties()
            properties.session_expiry_s = SESSION_EXPIRY_S
        return Options(
            host=self._base.host,
            port=self._ports[self.node],
            version=self.machine.version,
            client_id=self.machine.client_id,
            clean_start=False,
            keep_alive_s=30,
            will=will,
            properties=properties,
        )


def _answer_to(message: Message) -> Answer:
    """Where and how to answer: MQTT 5 says it in properties, for 3.1.1 it stands in the command itself."""
    command = json.loads(message.payload)
    payload = json.dumps({"id": command["id"], "result": "done"}).encode()
    asked = message.properties
    if asked is None or asked.response_topic is None:
        return Answer(command.get("reply_to", CONTROL_TOPIC), payload, None)
    properties = Properties()
    properties.correlation_data = asked.correlation_data
    return Answer(asked.response_topic.decode(), payload, properties)
