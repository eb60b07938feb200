"""Whole nodes in lockstep whose clients have persistent sessions: real MQTT packets in and out, on simulated disks.

```
 nodes = SessionNodes()                       three nodes that know each other
 device = nodes.connect(1, "c")               CONNECT of a session that lasts, and its CONNACK
 nodes.subscribe(device, b"a/#")              the reason code of the SUBACK
 nodes.publish(publisher, b"a/b", b"1")       the reason code of PUBACK or PUBREC
 nodes.got(device)                            payloads of all that came, acknowledged, until nothing more comes
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from flockmq.cluster.model import CAPTURE_TOPIC, DEFAULT_NAMESPACE, SESSIONS_TOPIC
from flockmq.cluster.tables import key_of
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Connack,
    Connect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
)
from flockmq.node.settings import BrokerSettings
from flockmq.routing.durable import shard_of
from flockmq.testing.harness_client import HarnessClient, make_properties
from flockmq.testing.lockstep_nodes import NodesLockstep, WholeNode

if TYPE_CHECKING:
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.durable.machine.session_table import SessionTable
    from flockmq.durable.sessions.leases import Leases
    from flockmq.node.ports import Gate

EXPIRY_S = 3_600
QUIET_MS = 1_500
"""When nothing came for so long, nothing comes any more."""

AnyPacket = TypeVar("AnyPacket", bound=Packet)


class Device:
    """A client of a node: keeps what comes, and acknowledges messages unless it ``holds``."""

    def __init__(self, client: HarnessClient, connack: Connack) -> None:
        self.client = client
        self.connack = connack
        self.holds = False
        self.messages: list[Publish] = []
        self.answers: list[Packet] = []
        self.owed: list[Publish] = []
        """Messages that are not acknowledged."""

    def look(self) -> None:
        """Take what came."""
        for packet in self.client.received():
            if isinstance(packet, Publish):
                self.messages.append(self.client.resolve(packet))
                self.owed.append(packet)
            elif isinstance(packet, Ack) and packet.kind == PUBREL:
                self.client.send(Ack(PUBCOMP, packet.packet_id))
            else:
                self.answers.append(packet)
        if not self.holds:
            self.acknowledge(len(self.owed))

    def acknowledge(self, count: int) -> None:
        """Acknowledge the first messages that came."""
        owed, self.owed = self.owed[:count], self.owed[count:]
        for message in owed:
            if message.qos and not self.client.closed:
                self.client.send(Ack(PUBACK if message.qos == 1 else PUBREC, message.packet_id))

    def answer(self, kind: type[AnyPacket]) -> AnyPacket | None:
        """Take the first answer of a kind."""
        self.look()
        for packet in self.answers:
            if isinstance(packet, kind):
                self.answers.remove(packet)
                return packet
        return None

    def payloads(self) -> list[bytes]:
        """Payloads of the messages that came since the last time."""
        self.look()
        messages, self.messages = self.messages, []
        return [message.payload for message in messages]


class SessionNodes(NodesLockstep):
    """See the module."""

    def __init__(
        self,
        count: int = 3,
        seed: int = 1,
        settings: BrokerSettings | None = None,
        *,
        gate: Gate | None = None,
        later: int = 0,
        edges: int = 0,
    ) -> None:
        """``later``: nodes that a test starts by itself (``join``)."""
        super().__init__(seed, cores=count + later, edges=edges, settings=settings, gate=gate)
        self.found(*range(2, count + 1), *range(count + later + 1, count + later + edges + 1))
        self.until(self.know_each_other)

    def know_each_other(self) -> bool:
        """Whether all nodes that run serve, and know all others in their cluster state; and these may vote."""
        running = self.running()
        is_known = all(one.durable.is_ready() and len(one.meta.state.nodes) == len(running) for one in running)
        return is_known and len(self.voters()) == len([one for one in running if not one.role])

    def knows_all(self, number: int) -> bool:
        """Whether a node serves, and has all others in its cluster state; and these may vote."""
        node = self[number]
        is_known = node.durable.is_ready() and len(node.meta.state.nodes) == len(self.nodes)
        return is_known and len(self.voters()) == len([one for one in self.nodes.values() if not one.role])

    def add_core(self, number: int) -> None:
        """A node that was never there; ``start`` begins its first life."""
        self.nodes[number] = WholeNode(self, number, 0)

    def join(self, number: int) -> None:
        """Another node comes."""
        self[number].start()
        self.until(self.know_each_other)

    # CONNECT.

    def ask(self, number: int, packet: Connect, ms_max: int = 10_000) -> Device:
        """A client with its CONNACK, whatever that says."""
        client = self[number].harness.connect(packet)
        self.until(lambda: client.has_received, ms_max)
        return Device(client, client.expect(Connack))

    def connect(
        self, number: int, client_id: str, *, expiry_s: int = EXPIRY_S, clean_start: bool = False, version: int = 5
    ) -> Device:
        """A client whose session outlives its connection."""
        packet = connect_packet(client_id, expiry_s=expiry_s, clean_start=clean_start, version=version)
        device = self.ask(number, packet)
        assert device.connack.reason == 0, device.connack
        return device

    def connect_again(self, number: int, client_id: str, tries: int = 5) -> Device:
        """As a client that comes again when it is told that the server is busy."""
        for _ in range(tries):
            device = self.ask(number, connect_packet(client_id))
            if device.connack.reason != reasons.SERVER_BUSY:
                break
            self.run(1_000)
        assert device.connack.reason == 0, device.connack
        return device

    def clean(self, number: int, client_id: str) -> Device:
        """A client whose session ends with its connection."""
        return self.connect(number, client_id, expiry_s=0, clean_start=True)

    def connect_old(self, number: int, client_id: str) -> Device:
        """A client that speaks MQTT 3.1.1, whose session ends with its connection."""
        return self.connect(number, client_id, clean_start=True, version=4)

    def drop(self, device: Device) -> None:
        """A client loses its connection; its record says so when this returns."""
        device.client.drop()
        self.until(lambda: not self.record(device.client.client_id).is_connected)

    # SUBSCRIBE.

    def send_subscribe(self, device: Device, topic_filter: bytes, qos: int = 1) -> None:
        """SUBSCRIBE; no answer is waited for."""
        device.client.send(Subscribe(device.client.next_id(), [SubscribeEntry(topic_filter, qos)]))

    def subscribe(self, device: Device, topic_filter: bytes, qos: int = 1, ms_max: int = 40_000) -> int:
        """The reason code of the SUBACK."""
        self.send_subscribe(device, topic_filter, qos)
        return self.answer(device, Suback, ms_max).reasons[0]

    def unsubscribe(self, device: Device, topic_filter: bytes) -> int:
        """The reason code of the UNSUBACK."""
        device.client.send(Unsubscribe(device.client.next_id(), [topic_filter]))
        return self.answer(device, Unsuback).reasons[0]

    def subscriber(self, number: int, client_id: str, topic_filter: bytes, qos: int = 1) -> Device:
        """A client with a session that lasts, and one subscription."""
        device = self.connect(number, client_id)
        assert self.subscribe(device, topic_filter, qos) == qos
        return device

    # PUBLISH.

    def send(self, device: Device, topic: bytes, payload: bytes, qos: int = 1, *, retain: bool = False) -> None:
        """PUBLISH; no answer is waited for."""
        device.client.send(Publish(topic, payload, qos, retain, False, device.client.next_id()))

    def publish(
        self, device: Device, topic: bytes, payload: bytes, qos: int = 1, *, retain: bool = False, ms_max: int = 30_000
    ) -> int:
        """The reason code of PUBACK or PUBREC; at QoS 2 the handshake goes on to its end."""
        self.send(device, topic, payload, qos, retain=retain)
        answer = self.answer(device, Ack, ms_max)
        assert answer.kind == (PUBACK if qos == 1 else PUBREC)
        if qos == 2 and answer.reason < 0x80:
            device.client.send(Ack(PUBREL, answer.packet_id))
            assert self.answer(device, Ack, ms_max).kind == PUBCOMP
        return answer.reason

    def publish_all(self, device: Device, topic: bytes, payloads: list[bytes]) -> None:
        """Messages of QoS 1, each after the PUBACK of the one before."""
        for payload in payloads:
            assert self.publish(device, topic, payload) < 0x80

    # What came.

    def answer(self, device: Device, kind: type[AnyPacket], ms_max: int = 20_000) -> AnyPacket:
        """Let time pass until an answer of a kind comes."""
        found: list[AnyPacket] = []

        def came() -> bool:
            packet = device.answer(kind)
            if packet is not None:
                found.append(packet)
            return bool(found)

        self.until(came, ms_max)
        return found[0]

    def got(self, device: Device, quiet_ms: int = QUIET_MS) -> list[bytes]:
        """Payloads of what came, until nothing came for a while."""
        found: list[bytes] = []
        while True:
            self.run(quiet_ms)
            fresh = device.payloads()
            if not fresh:
                return found
            found += fresh

    def until_got(self, device: Device, count: int, ms_max: int = 30_000) -> list[bytes]:
        """Payloads of the next messages."""
        found: list[bytes] = []

        def came() -> bool:
            found.extend(device.payloads())
            return len(found) >= count

        self.until(came, ms_max)
        return found

    def until_seen(self, device: Device, payload: bytes, ms_max: int = 30_000) -> None:
        """Let time pass until a message is among those of a device."""

        def came() -> bool:
            device.look()
            return any(message.payload == payload for message in device.messages)

        self.until(came, ms_max)

    # What nodes know.

    def groups(self, name: str = SESSIONS_TOPIC) -> list[int]:
        """Partitions of a hidden topic; none while there is no such topic."""
        node = next(iter(self.running()))
        topic = node.meta.state.topics.get(key_of(DEFAULT_NAMESPACE, name))
        return [] if topic is None else [partition.group for partition in topic.partitions]

    def shard(self, client_id: str) -> int:
        """The partition that has the record of a client."""
        groups = self.groups()
        return groups[shard_of(client_id.encode(), len(groups))]

    def table(self, client_id: str) -> SessionTable:
        """The shard of a client, as its leader has it."""
        group = self.shard(client_id)
        self.until(lambda: self.leader(group) is not None)
        leader = self.leader(group)
        assert leader is not None
        return leader.durable.machines.by_group[group].sessions

    def record(self, client_id: str) -> SessionRecord:
        """What the log has of a client's session."""
        return self.table(client_id).records[client_id.encode()]

    def has_record(self, client_id: str) -> bool:
        """Whether the log has something of a client's session."""
        return client_id.encode() in self.table(client_id).records

    def captured(self) -> list[bytes]:
        """Payloads of all captured messages, as the first node that runs has them."""
        node = next(iter(self.running()))
        return [payload for group in self.groups(CAPTURE_TOPIC) for payload in node.payloads(group)]

    def entries(self) -> int:
        """How many entries all shards have applied."""
        found = 0
        for group in self.groups():
            leader = self.leader(group)
            assert leader is not None
            found += leader.durable.machines.by_group[group].applied
        return found

    def same_shard(self, client_id: str, count: int) -> list[str]:
        """Other client ids of the same shard."""
        return [str(number) for number in range(100) if self.shard(str(number)) == self.shard(client_id)][:count]

    def leases(self, number: int) -> Leases:
        """What a node knows of the filters of persistent sessions."""
        return self[number].durable.session_room.leases


def connect_packet(
    client_id: str,
    *,
    expiry_s: int = EXPIRY_S,
    clean_start: bool = False,
    version: int = 5,
    username: str | None = None,
) -> Connect:
    """A CONNECT."""
    properties = make_properties(session_expiry_s=expiry_s) if version == 5 else None
    return Connect(version, client_id, clean_start, 0, properties, None, username, None)
