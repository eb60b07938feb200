"""A client that receives at QoS 2 as MQTT asks for it, over all its connections: what it took counts, and how often.

```
 receiver = Receiver(nodes, "c", 3, b"a/#")      a persistent session at node 3
 receiver.look()                                 take what came: PUBREC, PUBCOMP
 receiver.look(says_pubrec=False)                take messages, and remember their ids, without a word
 receiver.come_back(1)                           the same client at node 1
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.mqtt.packets import PUBCOMP, PUBREC, PUBREL, Ack, Publish
from session_nodes import Device, SessionNodes

if TYPE_CHECKING:
    from flockmq.durable.sessions.sending import SessionSending


class Receiver:
    """See the module."""

    def __init__(self, nodes: SessionNodes, client_id: str, number: int, topic_filter: bytes) -> None:
        self.nodes = nodes
        self.client_id = client_id
        self.number = number
        self.device: Device = nodes.subscriber(number, client_id, topic_filter, 2)
        self.taken: list[bytes] = []
        self.ids: dict[int, bytes] = {}
        """Messages that were taken, and are not released."""
        self.again: list[int] = []
        """Packet ids of messages that came again, with DUP."""
        self.owed: list[int] = []
        """PUBRECs that were not said."""

    def look(self, *, says_pubrec: bool = True, says_pubcomp: bool = True) -> None:
        """Take what came."""
        client = self.device.client
        for packet in client.received():
            if isinstance(packet, Publish):
                self._take(packet)
            elif isinstance(packet, Ack) and packet.kind == PUBREL:
                self.ids.pop(packet.packet_id, None)
                if says_pubcomp and not client.closed:
                    client.send(Ack(PUBCOMP, packet.packet_id))
        if says_pubrec:
            owed, self.owed = self.owed, []
            for packet_id in owed:
                if not client.closed:
                    client.send(Ack(PUBREC, packet_id))

    def _take(self, packet: Publish) -> None:
        assert packet.qos == 2
        known = self.ids.get(packet.packet_id)
        if known is None:
            self.ids[packet.packet_id] = packet.payload
            self.taken.append(packet.payload)
        else:
            assert known == packet.payload, f"packet id {packet.packet_id} was {known!r}, is {packet.payload!r}"
            assert packet.dup
        if packet.dup:
            self.again.append(packet.packet_id)
        self.owed.append(packet.packet_id)

    def come_back(self, number: int) -> None:
        """The client connects to another node, or again."""
        self.owed = []
        self.number = number
        self.device = self.nodes.connect_again(number, self.client_id)
        assert self.device.connack.session_present

    def finish(self, ms: int = 4_000) -> None:
        """Take all that comes, until nothing does."""
        for _ in range(ms // 50):
            self.nodes.run(50)
            self.look()
        assert not self.ids, "messages that were never released"

    @property
    def sending(self) -> SessionSending:
        """What its node knows of what is under way."""
        exact = self.nodes[self.number].harness.broker.sessions[self.client_id].exact
        assert exact is not None
        return exact  # type: ignore[return-value]

    def listed(self) -> dict[int, bool]:
        """Packet ids that the record of a node that lives has, and whether they are received."""
        group = self.nodes.shard(self.client_id)
        found: dict[int, bool] = {}
        known = 0
        for node in self.nodes.running():
            machine = node.durable.machines.by_group.get(group)
            if node.number != self.number and machine is not None and machine.applied > known:
                known = machine.applied
                sent = machine.sessions.records[self.client_id.encode()].sent
                found = {packet_id: message.is_received for packet_id, message in sent.by_id.items()}
        return found
