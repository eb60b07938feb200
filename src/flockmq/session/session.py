"""An MQTT session: subscriptions, messages on their way, QoS 2 ids received, will, expiry. It outlives connections.

```
            CONNECT                         transport gone, DISCONNECT
  (none) ------------> connected <-----> detached ---- expiry ----> ended
                           ^------ CONNECT, clean start off -------'
```
``deliver`` is where a routed run meets a subscriber. QoS 0 goes straight to the connection; QoS 1 and 2 pass through
``Outbound`` with its window and bounded queue.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from flockmq.mqtt.namespaces import INSIDE
from flockmq.mqtt.run import Run
from flockmq.session.aliases import send_with_alias, with_alias
from flockmq.session.connection import Connection
from flockmq.session.outbound import Delivery, LogSource, Outbound, encode_again, encode_flight, expiry_property

if TYPE_CHECKING:
    from flockmq.mqtt.packets import Will
    from flockmq.routing.subscription import Subscription
    from flockmq.session.places import LogPlace
    from flockmq.session.ports import ExactPort, QueuePort
    from flockmq.session.timers import Timer


class Session:
    """State kept for one client id."""

    def __init__(self, client_id: str, version: int, now: int) -> None:
        self.client_id = client_id
        self.version = version
        self.username: str | None = None
        self.peer = ""
        """The address that its client came from last."""
        self.connection: Connection | None = None
        self.is_over = False
        """The session ended, and no node will go on with it."""
        self.is_logged = False
        """The session outlives its connection in the log: messages of QoS 1 and 2 come to it from logs alone."""
        self.has_record = False
        """A record of this session is in the log; that of a session which ends with its connection keeps its will."""
        self.is_unregistered = False
        """The log could not be asked, and other nodes do not know of the client. Its QoS 2 messages to logs wait."""
        self.is_will_logged = False
        """The log keeps the will, and publishes it; ``will`` is a copy while the client is connected."""
        self.created_at = now
        self.detached_at = 0
        self.record_epoch = 0
        """The epoch of that record: statements about the session count under this one only."""
        self.began_epoch = 0
        """The epoch with which the session of that record began: QoS 2 ids of older epochs in logs are void."""
        self.expiry_s = 0
        """Seconds the session outlives its connection; 0xFFFFFFFF: for ever."""
        self.timer: Timer | None = None
        self.will_timer: Timer | None = None
        self.subscriptions: dict[bytes, Subscription] = {}
        self.subscriptions_weight = 0
        """How many subscriptions these count as; long and deep filters count as several."""
        self.outbound: Outbound | None = None
        self.exact: ExactPort | None = None
        """The record lists QoS 2 messages of logs before they are sent; None: it does not."""
        self.queues: dict[bytes, bytes] = {}
        """Filters of consumer groups that the client is a member of while it is connected -> what it asked for."""
        self.queue: QueuePort | None = None
        """Hears what becomes of the messages of these groups."""
        self.received: set[int] | None = None
        """Packet ids of QoS 2 messages taken and not yet released."""
        self.collected: set[int] | None = None
        """Ids in ``received`` that logs had of a lost session, until the client shows that it remembers them."""
        self.unsettled: dict[int, object] | None = None
        """Ids in ``received`` whose message is on its way into a log, with what waits for its outcome."""
        self.places: list[LogPlace] | None = None
        """On its way to another node: where it stands in the logs of durable topics."""
        self.will: Will | None = None
        self.window = 1
        """Most messages in flight towards the client."""
        self.queue_messages_max = 0
        self.queue_bytes_max = 0
        self.dropped = 0

    def deliver(self, run: Run, qos: int, retain: bool, properties: bytes, group: object, now: int) -> int:
        """Give this client a run at (at most) ``qos``; how many messages were dropped."""
        connection = self.connection
        qos = min(qos, run.qos)
        if qos == 0:
            if connection is None:
                return 0  # nothing is promised to a client that is away
            return self.send_now(connection, run, retain, properties, now)
        outbound = self.outbound
        if outbound is None:
            outbound = Outbound(self.queue_messages_max, self.queue_bytes_max)
            self.outbound = outbound
        dropped = outbound.offer(run, qos, retain, properties, group, now)
        if connection is not None and outbound.inflight < self.window:
            dropped += self.pump(now)
        self.dropped += dropped
        return dropped

    def is_crowded(self) -> bool:
        """Whether publishers should wait for this client's acknowledgements."""
        outbound = self.outbound
        return outbound is not None and outbound.is_crowded()

    def send_now(self, connection: Connection, run: Run, retain: bool, properties: bytes, now: int) -> int:
        """QoS 0: encode as this connection needs it and write."""
        version = connection.version
        if run.expires_at:
            if run.expires_at <= now:
                return run.count
            if version == 5:
                properties = properties + expiry_property(run.expires_at, now)
        if connection.client_alias_max:
            return send_with_alias(connection, run, retain, properties)
        if connection.client_packet_max:
            return self.send_fitting(connection, run, retain, properties)
        is_same = run.qos == 0 and version == run.version and retain == run.retain and not properties
        if is_same and not run.topic.startswith(INSIDE):
            data = run.wire
        else:
            data = run.form(version, 0, retain, properties).data
        if connection.send(data, run.count):
            return 0
        return self.send_some(connection, run, retain, properties)

    def send_some(self, connection: Connection, run: Run, retain: bool, properties: bytes) -> int:
        """QoS 0 that did not fit into the buffer as a whole (and was counted as dropped): as much of it as does."""
        form = run.form(connection.version, 0, retain, properties)
        high = bisect_right(form.ends, connection.bounds.write_bytes_max - connection.out_bytes)
        if high and connection.send(form.piece(0, high), high):
            connection.dropped -= high
            return run.count - high
        return run.count

    def send_fitting(self, connection: Connection, run: Run, retain: bool, properties: bytes) -> int:
        """QoS 0 to a client with a maximum packet size: what is too large is as good as delivered. [MQTT-3.1.2-25]"""
        form = run.form(connection.version, 0, retain, properties)
        dropped = 0
        start = 0
        for index, end in enumerate(form.ends):
            if end - start > connection.client_packet_max or not connection.send(form.piece(index, index + 1), 1):
                dropped += 1
            start = end
        return dropped

    def pump(self, now: int) -> int:
        """Send from the queue while the window and the transport allow; how many messages expired or were too large."""
        outbound = self.outbound
        connection = self.connection
        if outbound is None or connection is None:
            return 0
        dropped = 0
        if outbound.again:
            dropped = self.send_again(outbound, connection, now)
            if outbound.again:
                return dropped
        while outbound.queue_head < len(outbound.queue) and not connection.blocked:
            waiting = outbound.queue[outbound.queue_head]
            if waiting.run.expires_at and waiting.run.expires_at <= now:
                dropped += outbound.forget_next()
                continue
            room = outbound.room(self.window)
            is_listed = waiting.qos == 2 and self.exact is not None and isinstance(waiting.group, LogSource)
            if is_listed and self.exact is not None:
                room = min(room, self.exact.room())
            if room <= 0:
                break
            if is_listed:
                flight = outbound.launch(room)
                if flight is None:
                    break
                self.hold(flight)
                continue
            if connection.client_packet_max or connection.client_alias_max:
                dropped += self.launch_one(outbound, connection, now)
                continue
            flight = outbound.launch(room)
            if flight is None:
                break
            connection.reply(encode_flight(flight, connection.version, now))
            connection.count_out(flight.qos, flight.high - flight.low)
        return dropped

    def hold(self, flight: Delivery) -> None:
        """Send a flight when the record of this session lists it."""
        flight.is_unlisted = True
        if self.exact is not None:
            self.exact.hold(flight)

    def send_held(self, flight: Delivery, now: int) -> int:
        """The record lists a flight: send it, if its client is here; how many messages were too large."""
        flight.is_unlisted = False
        outbound = self.outbound
        connection = self.connection
        if outbound is None or connection is None:
            return 0  # sent when the client is back
        if not flight.settled and not connection.client_packet_max and not connection.client_alias_max:
            connection.reply(encode_flight(flight, connection.version, now))
            connection.count_out(flight.qos, flight.high - flight.low)
            return 0
        dropped = 0
        for place in flight.unsettled():
            pid = flight.first + place
            part = flight.run.part(flight.low + place, flight.low + place + 1)
            properties = flight.properties
            if part.expires_at and connection.version == 5:
                properties = properties + expiry_property(part.expires_at, now)
            if connection.client_alias_max:
                data = with_alias(connection, part, flight.qos, flight.retain, properties, pid)[0]
            else:
                data = part.stamped(connection.version, flight.qos, flight.retain, properties, 0, 1, pid)
            if connection.client_packet_max and len(data) > connection.client_packet_max:
                dropped += self.let_go(outbound, pid, flight.qos)
                continue
            connection.reply(data)
            connection.count_out(flight.qos, 1)
        return dropped

    def let_go(self, outbound: Outbound, pid: int, qos: int) -> int:
        """A message in flight can't be sent to this client: it is as good as delivered. [MQTT-3.1.2-25]"""
        outbound.settle(pid, qos)
        outbound.inflight -= 1
        if qos == 2 and self.exact is not None:
            self.exact.finished(pid)
        return 1

    def launch_one(self, outbound: Outbound, connection: Connection, now: int) -> int:
        """Send the next message to a client that limits packet sizes or takes topic aliases."""
        flight = outbound.launch(1)
        if flight is None:
            return 0
        if not connection.client_alias_max:
            data = encode_flight(flight, connection.version, now)
        else:
            part = flight.run.part(flight.low, flight.high)
            properties = flight.properties
            if flight.run.expires_at:
                properties = properties + expiry_property(flight.run.expires_at, now)
            data = with_alias(connection, part, flight.qos, flight.retain, properties, flight.first)[0]
        if connection.client_packet_max and len(data) > connection.client_packet_max:
            return self.let_go(outbound, flight.first, flight.qos)
        connection.reply(data)
        connection.count_out(flight.qos, 1)
        return 0

    def resume(self, now: int) -> int:
        """Send again what the client has not acknowledged, in order, then go on with the queue. [MQTT-4.4.0-1]

        How many messages expired meanwhile or are too large, as ``pump`` says.
        """
        outbound = self.outbound
        connection = self.connection
        if outbound is None or connection is None:
            return 0
        for pid, may_release in outbound.releasing.items():
            if not may_release:
                continue
            connection.reply(bytes((0x62, 2, pid >> 8, pid & 0xFF)))
        outbound.again = outbound.unfinished()
        outbound.again.reverse()
        return self.pump(now)

    def send_again(self, outbound: Outbound, connection: Connection, now: int) -> int:
        """Send unacknowledged messages once more, within the window of this connection; how many were too large."""
        dropped = 0
        again = outbound.again
        while again and outbound.inflight - len(again) < self.window and not connection.blocked:
            pid = again[-1]
            flight = outbound.flight_of(pid)
            if flight is not None and flight.is_unread():
                if self.exact is not None:
                    self.exact.unread()
                break
            again.pop()
            if flight is None:
                continue
            packet = encode_again(flight, pid, connection.version, now)
            if connection.client_packet_max and len(packet) > connection.client_packet_max:
                dropped += self.let_go(outbound, pid, flight.qos)
                continue
            connection.reply(packet)
            connection.count_out(flight.qos, 1)
        return dropped
