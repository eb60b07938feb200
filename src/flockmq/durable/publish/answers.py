"""The answers to a publisher about its messages to a durable topic, over MQTT or HTTP.

```
 run of a client, QoS 1 or 2 --> PublishAnswer   stored:  PUBACK / PUBREC, in the client's order
                                                 refused: MQTT 5: a failure code and what to do; 3.1.1: closed;
                                                          came with DUP at QoS 1: lost
                                                 lost:    closed, with no code for the message; the client resends it
 run of the admin API -------> CallAnswer        all of it at once, when all is known
 QoS 0, wills, delayed messages: no answer
```
A failure code is a promise that the message is not in the log. Where no node can promise that, the connection ends with
0x80 (unspecified error): the client connects again, here or elsewhere, and sends the message again with DUP.

A QoS 1 message that comes with DUP can only be stored or lost: its client left another node before the answer, and an
earlier copy may still wait for a leader there. At QoS 2 the session's owner asked the logs before, and earlier copies
are shut out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flockmq.mqtt import reasons
from flockmq.mqtt.encode import encode_ack, encode_packet
from flockmq.mqtt.packets import PUBACK, PUBREC, Ack
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.run import Run
from flockmq.node.delivering import route
from flockmq.node.lifecycle import disconnect
from flockmq.node.state import NodeState
from flockmq.session.acks import PendingAck
from flockmq.session.connection import CONNECTED, Connection
from flockmq.session.session import Session

PARTITION_PROPERTY: Final = "flockmq-partition"
OFFSET_PROPERTY: Final = "flockmq-offset"
WHY_LOST: Final = "It was not known in time whether a message was stored; connect again and send it again"

Place = tuple[int, int]
"""(shard, offset)"""


class Unsettled:
    """A QoS 2 message without an outcome, and the answers to its repeats."""

    def __init__(self) -> None:
        self.repeats: list[RepeatAnswer] = []


class Answer:
    """A publisher waits for the outcome of a run's messages. Positions are those within the run."""

    def __init__(self) -> None:
        self.wants_places = False
        """The publisher asked for offsets."""
        self.waits_for_commit = False
        """True: acknowledge at commit only, at any ack level (QoS 2, or the client asked for offsets)."""
        self.has_copies = False
        """Its messages may be in the log, or get there, by themselves: they can't be refused."""

    def asks_for_places(self) -> None:
        """One of its messages asks for its offset."""

    def comes_again(self) -> bool:
        """Whether its messages will come again after others that were lost, and so had better wait for those."""
        return False

    def stored(self, first: int, count: int, shard: int, offset: int) -> None:
        """The records are in the log; from ``offset`` on, if that is known (else -1)."""
        raise NotImplementedError

    def refused(self, first: int, count: int, code: int, text: str) -> None:
        """The records are certainly not in the log."""
        raise NotImplementedError

    def lost(self, first: int, count: int) -> None:
        """The outcome of these messages is not known."""
        raise NotImplementedError


class PublishAnswer(Answer):
    """To a client that is connected here, or was."""

    def __init__(
        self, node: NodeState, connection: Connection, session: Session, qos: int, pending: PendingAck
    ) -> None:
        super().__init__()
        self.node = node
        self.connection = connection
        self.session = session
        self.qos = qos
        self.pending = pending
        self.unsettled: list[Unsettled] | None = None
        """QoS 2: what the session knows of each message until it has an outcome."""
        self.captured: Run | None = None
        """QoS 2 to a name that no durable topic has: sessions that are not persistent get it once it is stored."""
        self.wants_places = connection.wants_places
        self.waits_for_commit = qos == 2 or self.wants_places

    def asks_for_places(self) -> None:
        """See ``Answer``. A client that wants no words beyond the necessary gets none. [MQTT-3.1.2-29]"""
        self.wants_places = self.connection.version == 5 and self.connection.wants_problem_information
        self.waits_for_commit = self.qos == 2 or self.wants_places

    def comes_again(self) -> bool:
        """See ``Answer``. Not so at QoS 2: there the first message counts, however often it comes."""
        acks = self.connection.acks
        return self.qos == 1 and acks is not None and acks.is_broken

    def stored(self, first: int, count: int, shard: int, offset: int) -> None:
        """PUBACK, or PUBREC."""
        if self.wants_places and offset >= 0:
            self._name_places(first, count, shard, offset)
        if self.captured is not None:
            run = self.captured.part(first, first + count)
            route(self.node, self.node.table.plan(run.topic), run, self.connection, self.node.now)
        self.pending.left -= count
        if not self.pending.left:
            self.connection.go_on_answering()

    def _name_places(self, first: int, count: int, shard: int, offset: int) -> None:
        connection = self.connection
        limit = connection.client_packet_max
        kind = PUBACK if self.qos == 1 else PUBREC
        for index in range(count):
            properties = Properties()
            properties.user = [(PARTITION_PROPERTY, str(shard)), (OFFSET_PROPERTY, str(offset + index))]
            packet = encode_packet(Ack(kind, self.pending.packet_id(first + index), 0, properties), 5)
            if not limit or len(packet) <= limit:  # [MQTT-3.4.2-3], [MQTT-3.5.2-3]
                self.pending.answer(first + index, packet)

    def refused(self, first: int, count: int, code: int, text: str) -> None:
        """Tell an MQTT 5 client; close the connection of another: an acknowledgement would be a lie. [MQTT-4.8.0-2]"""
        connection = self.connection
        if connection.version != 5:
            self.close(code, text)
            return
        kind = PUBACK if self.qos == 1 else PUBREC
        limit = connection.client_packet_max
        for index in range(first, first + count):
            pid = self.pending.packet_id(index)
            packet = encode_ack(kind, pid, code, 5, text if connection.wants_problem_information else None)
            if limit and len(packet) > limit:
                packet = encode_ack(kind, pid, code, 5)
            self.pending.answer(index, packet)
        self.pending.left -= count
        if not self.pending.left:
            self.connection.go_on_answering()

    def lost(self, first: int, count: int) -> None:  # noqa: ARG002
        """Close the connection."""
        self.close(reasons.UNSPECIFIED_ERROR, WHY_LOST)

    def close(self, code: int, text: str) -> None:
        """End the connection, if it is still there."""
        if self.connection.acks is not None:
            self.connection.acks.is_broken = True
        if self.connection.phase == CONNECTED:
            disconnect(self.node, self.connection, code, text, self.node.now)


class CallAnswer(Answer):
    """To the publisher of a run within this node: place, or why not, for each message; None when that is not known."""

    def __init__(self, count: int, reply: Callable[[list[Place | str] | None], None]) -> None:
        super().__init__()
        self.wants_places = True
        self.waits_for_commit = True
        self.left = count
        self.reply = reply
        self.is_lost = False
        self.places: list[Place | str] = [""] * count

    def stored(self, first: int, count: int, shard: int, offset: int) -> None:
        """Note where."""
        for index in range(count):
            self.places[first + index] = (shard, offset + index)
        self._settle(count)

    def refused(self, first: int, count: int, code: int, text: str) -> None:  # noqa: ARG002
        """Note why."""
        self.places[first : first + count] = [text] * count
        self._settle(count)

    def lost(self, first: int, count: int) -> None:  # noqa: ARG002
        """Note that."""
        self.is_lost = True
        self._settle(count)

    def _settle(self, count: int) -> None:
        self.left -= count
        if not self.left:
            self.reply(None if self.is_lost else self.places)


class RepeatAnswer(PublishAnswer):
    """To a QoS 2 message that came again before the first of its kind had an outcome."""

    def __init__(self, node: NodeState, connection: Connection, session: Session, pending: PendingAck) -> None:
        super().__init__(node, connection, session, 2, pending)
        self.wants_places = False
