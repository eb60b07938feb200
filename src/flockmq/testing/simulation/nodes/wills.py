"""Clients that leave wills, and the rule for these: each reaches its log once, however its client goes and comes.

```
 watcher: a persistent session waits for wills/# --> its SUBACK --> all wills go into the log of captured messages
 client:  CONNECT with the will NUMBER --> lost, taken over by its own next connection, or DISCONNECT --> NUMBER + 1
```
| rule | broken when |
| --- | --- |
| will once | a will is in a log twice |
| will kept | a CONNACK came, the connection ended without a goodbye, and the will is in no log when all is calm again |
| will void | a client said goodbye to a node that lives on, nothing went wrong meanwhile, and the will is in a log |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.model import CAPTURE_TOPIC, DEFAULT_NAMESPACE
from flockmq.cluster.tables import key_of
from flockmq.mqtt import packets as p
from flockmq.testing.harness import make_properties
from flockmq.testing.simulation.nodes.clients import CONNECT_US, EXPIRY_S, Client
from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    import random

    from flockmq.testing.simulation.nodes.world import NodesWorld

WILLS: Final = "wills"
WILL_CLIENTS: Final = 2
STAY_US: Final = 700_000
"""Mean time until a client goes, again and again."""


class WillRules:
    """Clients report here what they were promised."""

    def __init__(self, cluster: NodesWorld) -> None:
        self._cluster = cluster
        self.is_watched = False
        self._given: set[bytes] = set()
        self._due: set[bytes] = set()
        self._void: set[bytes] = set()

    def given(self, payload: bytes) -> None:
        """A CONNECT with this will was sent."""
        self._given.add(payload)

    def ended(self, payload: bytes, said_goodbye: bool) -> None:
        """A connection that had its CONNACK is over."""
        (self._void if said_goodbye else self._due).add(payload)

    def waiting(self) -> str:
        """Which wills are still on their way; empty when all that are due are published."""
        for process in self._cluster.processes():
            for group, machine in process.durable.machines.by_group.items():
                wills = machine.sessions.wills
                if wills.runs or wills.due(machine.clock_ms, 1):
                    return f"wills of group {group} at node {process.number} are due"
        return ""

    def check(self, logs: dict[int, list[tuple[bytes, bytes]]]) -> None:
        """``logs``: records of all partitions, by group."""
        topic = self._cluster.processes()[0].durable.meta.state.topics.get(key_of(DEFAULT_NAMESPACE, CAPTURE_TOPIC))
        groups = [] if topic is None else [partition.group for partition in topic.partitions]
        start = f"{WILLS}/".encode()
        found = [payload for group in groups for name, payload in logs[group] if name.startswith(start)]
        if len(set(found)) < len(found):
            twice = sorted(payload for payload in set(found) if found.count(payload) > 1)
            raise Violation("will once", f"{len(twice)} wills are in a log twice, such as {twice[:3]}")
        strange = sorted(set(found) - self._given)
        if strange:
            raise Violation("will once", f"no client gave {strange[:3]}")
        lost = sorted(self._due - set(found))
        if lost:
            raise Violation("will kept", f"{len(lost)} wills are in no log, such as {lost[:3]}")
        void = sorted(self._void & set(found))
        if void and not self._cluster.plan.faults:
            raise Violation("will void", f"clients said goodbye, and their wills are in a log, such as {void[:3]}")
        self._cluster.count("wills due", len(self._due))
        self._cluster.count("wills void", len(self._void))


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
        will = p.Will(f"{WILLS}/{self.name}".encode(), self._will, 1)
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
        self._cluster.wills.ended(self._will, self._said_goodbye)
