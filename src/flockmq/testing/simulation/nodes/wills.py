"""Clients that leave wills; ``will_rules.py`` says what is promised to them.

```
 watcher: a persistent session waits for wills/# --> its SUBACK --> all wills go into the log of captured messages
 client:  CONNECT with the will NUMBER --> lost, taken over by its own next connection, or DISCONNECT --> NUMBER + 1
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.mqtt import packets as p
from flockmq.testing.harness import make_properties
from flockmq.testing.simulation.nodes.clients import CONNECT_US, EXPIRY_S, Client

if TYPE_CHECKING:
    import random

    from flockmq.testing.simulation.nodes.world import NodesWorld

WILLS: Final = "wills"
WILL_CLIENTS: Final = 2
STAY_US: Final = 700_000
"""Mean time until a client goes, again and again."""
DELAYS_S: Final = (0, 0, 1)


class WillWatcher(Client):
    """A persistent session that waits for all wills."""

    def __init__(self, cluster: NodesWorld, name: str, rng: random.Random) -> None:
        super().__init__(cluster, name, rng, clean=False)

    def is_waiting(self) -> bool:
        """Whether the SUBACK is due."""
        return not self._cluster.wills.is_watched

    def begun(self, connack: p.Connack) -> None:  # noqa: ARG002
        """Subscribe, until a SUBACK has come."""
        if not self._cluster.wills.is_watched:
            self.send(p.Subscribe(1, [p.SubscribeEntry(f"{WILLS}/#".encode(), 1)]))

    def got(self, packet: p.Packet) -> None:
        """The SUBACK, or a will."""
        if isinstance(packet, p.Suback):
            if packet.reasons[0] < 0x80:
                self._cluster.wills.is_watched = True
            else:
                self.lost()
        elif isinstance(packet, p.Publish) and packet.qos == 1:
            self._cluster.count("wills seen")
            self.send(p.Ack(p.PUBACK, packet.packet_id))


class WillClient(Client):
    """Comes with a will, and goes in one way or another."""

    def __init__(self, cluster: NodesWorld, name: str, rng: random.Random) -> None:
        self._will = b""
        self._said_goodbye = False
        self._delay_s = 0
        super().__init__(cluster, name, rng, clean=False)
        self._later(STAY_US, self._go)

    def is_away(self) -> bool:
        """Whether the client does not come yet."""
        return not self._cluster.wills.is_watched

    def connect_packet(self) -> p.Connect:
        """With another will each time."""
        self._will = f"{self.name} {self.connections}".encode()
        self._said_goodbye = False
        self._cluster.wills.given(self._will)
        self._delay_s = self._rng.choice(DELAYS_S) if self._cluster.plan.wills > 1 else 0
        properties = make_properties(will_delay_s=self._delay_s) if self._delay_s else None
        will = p.Will(f"{WILLS}/{self.name}".encode(), self._will, 1, properties=properties)
        return p.Connect(5, self.name, False, 0, make_properties(session_expiry_s=EXPIRY_S), will)

    def _connect(self, connection: int) -> None:
        if self.is_away():
            self._later(CONNECT_US, self._connect, connection)
        else:
            super()._connect(connection)

    def _go(self) -> None:
        self._later(STAY_US, self._go)
        if not self.connected or self.quiet:
            return
        way = self._rng.randrange(3)
        if way == 0:
            self._said_goodbye = True
            self.send(p.Disconnect(0))
            self._later(CONNECT_US, self._leave, self.connections)
        elif way == 1:
            self._leave(self.connections)
        else:
            self.lost()

    def _leave(self, connection: int) -> None:
        """Come with another connection, which takes over from this one."""
        if connection == self.connections:
            self._link = None
            self.lost()

    def ended(self) -> None:
        """A connection that had its CONNACK is over."""
        self._cluster.wills.ended(self._will, self._said_goodbye, self._delay_s > 0)
