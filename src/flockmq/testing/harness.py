"""A whole broker without sockets or clock: what it answers depends on what it is sent, the virtual time and one seed.

```
 test --> HarnessClient.send(bytes) --> Broker.receive --> Broker.dirty --> HarnessClient.received()
      `-> BrokerHarness.advance(ms) --> Broker.tick ------------^
```
Use it to test code that speaks MQTT, or the broker itself, without waiting for anything:

```python
harness = BrokerHarness()
sensor = harness.client("sensor")
screen = harness.client("screen", version=4)
screen.subscribe(b"plant/+/temperature", qos=1)
sensor.publish(b"plant/7/temperature", b"21.5", qos=1)
assert [message.payload for message in screen.consume()] == [b"21.5"]
```
The harness does what a driver does: it hands bytes in, takes bytes out, stops reading from a client when the broker
asks for it, and closes when the broker wants that. ``feeding`` cuts what clients send into single bytes or random
pieces, as networks do.
"""

from __future__ import annotations

import random
from typing import Final, TypedDict, Unpack

from flockmq.errors import FlockError
from flockmq.mqtt.packets import Connack, Connect, Will
from flockmq.mqtt.properties import Properties
from flockmq.node.broker import Broker
from flockmq.node.ports import Alone, Gate, OpenGate
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness_client import HarnessClient, make_properties

__all__ = ["FEEDINGS", "BrokerHarness", "HarnessClient", "make_properties"]

FEEDINGS: Final = ("whole", "bytes", "random")
TICK_MS: Final = 100
"""Gap between two ticks, as of the real drivers."""
TICKS_MAX: Final = 500
"""Most ticks of one ``advance``: a week passes in as many steps as a minute."""
START_MS: Final = 1_000_000
WALL_MS: Final = 1_700_000_000_000


class Where(TypedDict, total=False):
    """From where and through which listener a client comes."""

    listener: str
    limits: Limits
    peer: str
    certificate_name: str
    refuse_code: int
    """The listener has no room: its CONNECT will be answered by this reason code."""


class BrokerHarness:
    """The broker, its virtual clock (``now``, in ms) and all clients connected to it."""

    def __init__(
        self,
        seed: int = 0,
        settings: BrokerSettings | None = None,
        gate: Gate | None = None,
        feeding: str = "whole",
        broker: Broker | None = None,
        node_id: int = 0,
    ) -> None:
        """``broker``: that of an assembled node; without one the harness makes a broker. ``node_id``: of a
        node among others, whose parts are then put into ``ports``; 0: of a node alone."""
        if feeding not in FEEDINGS:
            raise FlockError(f"Unknown feeding {feeding!r}: use one of {', '.join(FEEDINGS)}")
        self.settings = settings if settings is not None else BrokerSettings()
        self.feeding = feeding
        self.now = START_MS
        self.ports = Alone()
        rng = random.Random(seed)  # noqa: S311 the point is that it can be repeated
        if broker is None:
            broker = Broker(
                self.settings,
                gate if gate is not None else OpenGate(),
                rng,
                self.now,
                WALL_MS,
                node_id=node_id,
                ports=self.ports if node_id else None,
            )
        self.broker = broker
        self._senders: dict[HarnessClient, None] = {}
        self._cuts = random.Random(seed + 1)  # noqa: S311 apart from the broker's: feeding must not change its choices

    def raw(self, version: int = 5, **where: Unpack[Where]) -> HarnessClient:
        """Open a connection on which nothing was sent yet. ``version`` says how to decode what comes back."""
        connection = self.broker.open(
            where.get("listener", "tcp"),
            where.get("limits", self.settings.limits),
            where.get("peer", "127.0.0.1"),
            self.now,
            where.get("certificate_name"),
            where.get("refuse_code", 0),
        )
        client = HarnessClient(self, connection, version)
        connection.handle = client
        self.flush()
        return client

    def connect(self, packet: Connect, **where: Unpack[Where]) -> HarnessClient:
        """Open a connection and send this CONNECT. The answer waits in ``received()``."""
        client = self.raw(packet.version, **where)
        client.client_id = packet.client_id
        client.send(packet)
        return client

    def client(
        self,
        client_id: str = "",
        version: int = 5,
        clean_start: bool = True,
        *,
        keep_alive_s: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        session_expiry_s: int | None = None,
        properties: Properties | None = None,
        **where: Unpack[Where],
    ) -> HarnessClient:
        """Connect as an ordinary client and return it with its CONNACK; fails if the broker refuses.

        ``properties`` are those of the CONNECT (see ``make_properties``).
        """
        if session_expiry_s is not None:
            properties = properties if properties is not None else Properties()
            properties.session_expiry_s = session_expiry_s
        packet = Connect(version, client_id, clean_start, keep_alive_s, properties, will, username, password)
        client = self.connect(packet, **where)
        client.connack = client.expect(Connack)
        if client.connack.reason != 0:
            raise AssertionError(f"The broker refused client {client_id!r}: {client.connack!r}")
        if client.connack.properties.assigned_client_id is not None:
            client.client_id = client.connack.properties.assigned_client_id
        return client

    def advance(self, ms: int) -> None:
        """Let time pass: the broker is ticked all the way."""
        end = self.now + ms
        step = max(TICK_MS, ms // TICKS_MAX)
        while self.now < end:
            self.now = min(self.now + step, end)
            self.broker.tick(self.now)
            self.flush()

    def shutdown(self) -> None:
        """Stop the broker in good order."""
        self.broker.shutdown(self.now)
        self.flush()

    def flush(self, sender: HarnessClient | None = None) -> None:
        """Do what a driver does until nothing is left to do: read, write, close. The clients call this themselves."""
        if sender is not None and sender.has_unsent:
            self._senders[sender] = None
        while True:
            for connection in self.broker.take_dirty():
                if isinstance(connection.handle, HarnessClient):
                    connection.handle.drain()
            if self.broker.has_more():
                continue
            fed = [client.feed() for client in self._senders]
            if not any(fed):
                break
            self._senders = {client: None for client in self._senders if client.has_unsent}

    def pieces(self, data: bytes) -> list[bytes]:
        """Cut what a client sends, as ``feeding`` says."""
        if self.feeding == "bytes":
            return [data[at : at + 1] for at in range(len(data))]
        if self.feeding == "random":
            cuts = sorted(self._cuts.randrange(len(data) + 1) for _ in range(self._cuts.randrange(6)))
            return [data[low:high] for low, high in zip([0, *cuts], [*cuts, len(data)], strict=True) if low < high]
        return [data]
