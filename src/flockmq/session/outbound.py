"""QoS 1 and 2 messages on their way to one client: those in flight, in order of packet ids, and those that wait.

```
 offer() --> queue (bounded) --pump()--> flights --PUBACK / PUBREC--> done
                                  |                     `--> awaiting PUBCOMP (QoS 2)
                                  `--> bytes with packet ids, for the connection
```
A flight is a piece of a run with consecutive packet ids, so a thousand messages in flight are one object, an
acknowledgement in order is one addition, and only acknowledgements out of order cost an entry of a set. Packet ids are
given in sequence; none between the oldest unfinished one and the newest is given again before the oldest is done.
"""

from __future__ import annotations

from typing import Final

from flockmq.mqtt.run import Run
from flockmq.session.sources import MemberSource

PACKET_IDS: Final = 65_535
DELIVERY_OVERHEAD_BYTES: Final = 200
SHRINK_EFFORT: Final = 64
"""Flights that ``shrink`` may look at for each one that changed since the last time."""
NOTHING: Final = Run(4, 0, False, b"", b"", 0, [], [])


class LogSource:
    """Where a run comes from: consecutive records of a partition, the first of them at ``offset``."""

    def __init__(self, partition: int, offset: int) -> None:
        self.partition = partition
        self.offset = offset


class Delivery:
    """Messages ``low`` to ``high`` of a run, for one client: waiting, or in flight from packet id ``first`` on."""

    def __init__(
        self, run: Run, low: int, high: int, qos: int, retain: bool, properties: bytes, group: object, first: int
    ) -> None:
        self.run = run
        self.low = low
        self.high = high
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.group = group
        """The shared group that chose this client (a ShareGroup), which may choose again if its session ends; or the
        log that the run was read from (a LogSource); or the consumer group that it is for (a MemberSource)."""
        self.skipped = 0
        """How many messages of the run as it was read stood before the first one that ``run`` still has."""
        self.first = first
        self.settled = 0
        """How many from ``low`` on are acknowledged without a gap."""
        self.holes: set[int] | None = None
        """Places (from ``low``) acknowledged beyond the first gap."""
        self.held = 0
        """Bytes this delivery counts against the session's bound."""
        self.is_unlisted = False
        """In flight, but not sent: the record of the session does not list it yet."""

    def is_unread(self) -> bool:
        """Whether it is in flight by the record of its session, and its message is still to be read from the log."""
        return self.run.count == 0

    def offset_at(self, place: int) -> int:
        """The offset in its log of the message at ``place``; -1: it is from no log."""
        source = self.group
        return source.offset + self.skipped + self.low + place if isinstance(source, LogSource) else -1

    def settle(self, place: int) -> bool:
        """Note the acknowledgement of the message at ``place``; False if it had one before."""
        if place == self.settled:
            self.settled += 1
            holes = self.holes
            if holes:
                while self.settled in holes:
                    holes.discard(self.settled)
                    self.settled += 1
            return True
        if place < self.settled:
            return False
        holes = self.holes
        if holes is None:
            holes = set()
            self.holes = holes
        if place in holes:
            return False
        holes.add(place)
        return True

    def unsettled(self) -> list[int]:
        """Places that still wait for their acknowledgement."""
        holes = self.holes
        count = self.high - self.low
        if not holes:
            return list(range(self.settled, count))
        return [place for place in range(self.settled, count) if place not in holes]


class Outbound:
    """The window and the queue of one session. Allocated with its first QoS 1 or 2 message."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages_max = messages_max or 1 << 62
        self.bytes_max = bytes_max or 1 << 62
        self.flights: list[Delivery] = []
        self.flights_head = 0
        self.queue: list[Delivery] = []
        self.queue_head = 0
        self.queued = 0
        """Messages that wait."""
        self.held = 0
        """Bytes of runs kept alive by queue and flights."""
        self.inflight = 0
        """Messages sent and not finished: PUBACK, PUBCOMP or a refusing PUBREC is still to come."""
        self.shrinkable = 0
        """Acknowledgements and cut runs since the last ``shrink``: it takes enough of them to make another worth it."""
        self.next_pid = 1
        self.again: list[int] = []
        """Packet ids to send again after a resumption, newest first; they leave it as the window allows."""
        self.releasing: dict[int, bool] = {}
        """Packet ids between the client's PUBREC and PUBCOMP, oldest first. False: PUBREL is still to be sent, when the
        record of the session has the PUBREC."""

    def is_waiting(self) -> bool:
        """Whether there is something that ``Session.pump`` could send."""
        return self.queue_head < len(self.queue) or len(self.again) > 0

    def is_crowded(self) -> bool:
        """Whether one of the bounds is more than half reached."""
        return self.queued * 2 > self.messages_max or self.held * 2 > self.bytes_max

    # --- in ---

    def offer(self, run: Run, qos: int, retain: bool, properties: bytes, group: object, now: int = 0) -> int:
        """Queue a run; how many messages had to be dropped because a bound was reached, or expired meanwhile."""
        count = run.count
        cost = len(run.wire) + DELIVERY_OVERHEAD_BYTES
        expired = 0
        if self.queued + count > self.messages_max or self.held + cost > self.bytes_max:
            expired = self.forget_expired(now)
        high = count
        if self.queued + count > self.messages_max:
            high = self.messages_max - self.queued
        if self.held + cost > self.bytes_max:
            if self.shrinkable * SHRINK_EFFORT >= len(self.flights) - self.flights_head:
                self.shrink()
            if self.held + cost > self.bytes_max:
                high = min(high, run.fitting(self.bytes_max - self.held - DELIVERY_OVERHEAD_BYTES))
                if high > 0:
                    run = run.part(0, high)
                    cost = len(run.wire) + DELIVERY_OVERHEAD_BYTES
        if high <= 0:
            return count + expired
        delivery = Delivery(run, 0, high, qos, retain, properties, group, 0)
        delivery.held = cost
        self.held += cost
        self.queue.append(delivery)
        self.queued += high
        return count - high + expired

    def shrink(self) -> None:
        """Let go of the parts of runs that are acknowledged already: copy what is still needed out of them."""
        self.shrinkable = 0
        for index in range(self.flights_head, len(self.flights)):
            flight = self.flights[index]
            if flight.settled == flight.high - flight.low:
                flight.run = NOTHING  # done, and kept only because an older one is not
                self.recount(flight)
            elif flight.settled or flight.high - flight.low < flight.run.count:
                low = flight.low + flight.settled
                flight.run = flight.run.part(low, flight.high)
                flight.skipped += low
                flight.high -= low
                flight.low = 0
                flight.first += flight.settled
                if flight.holes:
                    flight.holes = {place - flight.settled for place in flight.holes}
                flight.settled = 0
                self.recount(flight)
        if self.queue_head < len(self.queue):
            waiting = self.queue[self.queue_head]
            if waiting.high - waiting.low < waiting.run.count:
                waiting.run = waiting.run.part(waiting.low, waiting.high)
                waiting.skipped += waiting.low
                waiting.high -= waiting.low
                waiting.low = 0
                self.recount(waiting)

    def recount(self, delivery: Delivery) -> None:
        """Count a delivery's bytes anew after its run became smaller."""
        self.held -= delivery.held
        delivery.held = len(delivery.run.wire) + DELIVERY_OVERHEAD_BYTES
        self.held += delivery.held

    # --- out ---

    def room(self, window: int) -> int:
        """How many messages may be sent now: the window, less what is in flight. ``launch`` may find ids in use."""
        free = window - self.inflight
        if free <= 0:
            return 0
        oldest = 0
        if self.flights_head < len(self.flights):
            flight = self.flights[self.flights_head]
            oldest = flight.first + flight.settled
        if oldest:
            ids = PACKET_IDS - self.age(oldest)
            free = min(free, ids)
        return free

    def age(self, pid: int) -> int:
        """How many ids have been given since ``pid``, itself included."""
        return (self.next_pid - pid) % PACKET_IDS or PACKET_IDS

    def launch(self, count_max: int) -> Delivery | None:
        """Move up to ``count_max`` messages from the queue into flight; their packet ids are consecutive."""
        if self.queue_head >= len(self.queue):
            return None
        waiting = self.queue[self.queue_head]
        count = waiting.high - waiting.low
        count = min(count, count_max)
        count = min(count, PACKET_IDS + 1 - self.next_pid)
        first = self.next_pid
        if self.releasing:  # in any order: only a look at each id tells
            for step in range(count):
                if first + step in self.releasing:
                    count = step
                    break
        if count <= 0:
            return None
        self.next_pid = first + count if first + count <= PACKET_IDS else 1
        self.queued -= count
        self.inflight += count
        if waiting.low + count == waiting.high:
            flight = waiting
            flight.first = first
            self.leave_queue()
        else:
            high = waiting.low + count
            flight = Delivery(
                waiting.run, waiting.low, high, waiting.qos, waiting.retain, waiting.properties, waiting.group, first
            )
            flight.skipped = waiting.skipped
            flight.held = len(waiting.run.wire) + DELIVERY_OVERHEAD_BYTES
            self.held += flight.held
            self.shrinkable += 1
            waiting.low = high
        self.flights.append(flight)
        return flight

    def forget_next(self) -> int:
        """Drop the delivery at the head of the queue (it expired); how many messages it had."""
        waiting = self.queue[self.queue_head]
        self.held -= waiting.held
        count = waiting.high - waiting.low
        self.queued -= count
        waiting.run = NOTHING  # the list may keep it for a while
        self.leave_queue()
        return count

    def forget_expired(self, now: int) -> int:
        """Drop what expired at the head of the queue, to make room; how many messages."""
        count = 0
        while self.queue_head < len(self.queue):
            expires_at = self.queue[self.queue_head].run.expires_at
            if not expires_at or expires_at > now:
                break
            count += self.forget_next()
        return count

    def leave_queue(self) -> None:
        """The delivery at the head is no longer waiting."""
        self.queue_head += 1
        if self.queue_head == len(self.queue):
            self.queue.clear()
            self.queue_head = 0
        elif self.queue_head > 256 and self.queue_head * 2 > len(self.queue):
            del self.queue[: self.queue_head]
            self.queue_head = 0

    # --- acknowledgements ---

    def settle(self, pid: int, qos: int) -> bool:
        """The client has message ``pid`` (PUBACK or PUBREC): it needs no sending again. False: it was not in flight."""
        flights = self.flights
        head = self.flights_head
        if head >= len(flights):
            return False
        flight = flights[head]
        place = pid - flight.first
        if place < 0 or place >= flight.high - flight.low:
            found = self.find(pid)
            if found < 0:
                return False
            flight = flights[found]
            place = pid - flight.first
        if flight.qos != qos or not flight.settle(place):
            return False
        source = flight.group
        if isinstance(source, MemberSource):
            source.settled(flight.skipped + flight.low + place)
        self.shrinkable += 1
        while head < len(flights):
            flight = flights[head]
            if flight.settled < flight.high - flight.low:
                break
            self.held -= flight.held
            flight.run = NOTHING  # the lists may keep it for a while
            head += 1
        if head == len(flights):
            flights.clear()
            head = 0
        elif head > 256 and head * 2 > len(flights):
            del flights[:head]
            head = 0
        self.flights_head = head
        return True

    def find(self, pid: int) -> int:
        """Index of the flight that holds ``pid``, by halving: flights stand in the order their ids were given."""
        flights = self.flights
        low = self.flights_head
        high = len(flights)
        age = self.age(pid)
        while low < high:
            middle = (low + high) // 2
            flight = flights[middle]
            first_age = self.age(flight.first)
            if age > first_age:
                high = middle
            elif age <= first_age - (flight.high - flight.low):
                low = middle + 1
            else:
                return middle
        return -1

    def unfinished(self) -> list[int]:
        """Packet ids of all messages that were sent and wait for PUBACK or PUBREC, oldest first."""
        return [
            flight.first + place
            for flight in self.flights[self.flights_head :]
            if not flight.is_unlisted
            for place in flight.unsettled()
        ]

    def add_flights(self, fresh: list[Delivery]) -> None:
        """Have more in flight; ids of these were given at some time before ``next_pid``, and are in no other flight."""
        flights = self.flights[self.flights_head :] + fresh
        flights.sort(key=self.age_of, reverse=True)
        self.flights = flights
        self.flights_head = 0
        self.inflight += sum([flight.high - flight.low for flight in fresh])

    def age_of(self, flight: Delivery) -> int:
        """The age of its first id."""
        return self.age(flight.first)

    def flight_of(self, pid: int) -> Delivery | None:
        """The flight in which a message still waits for its acknowledgement."""
        found = self.find(pid)
        if found < 0:
            return None
        flight = self.flights[found]
        place = pid - flight.first
        if place < flight.settled or (flight.holes and place in flight.holes):
            return None
        return flight

    def finish(self, pid: int) -> bool:
        """PUBCOMP, or a PUBREC that refuses: the id is free again."""
        if not self.releasing.get(pid, False):
            return False
        del self.releasing[pid]
        self.inflight -= 1
        return True

    def oldest_logged(self) -> dict[int, int]:
        """By partition, the offset of the first message of its log that the client has not acknowledged."""
        found: dict[int, int] = {}
        for delivery in self.waiting_runs():
            source = delivery.group
            if isinstance(source, LogSource) and delivery.settled < delivery.high - delivery.low:
                offset = delivery.offset_at(delivery.settled)
                found[source.partition] = min(found.get(source.partition, offset), offset)
        return found

    def waiting_runs(self) -> list[Delivery]:
        """Everything not acknowledged, oldest first, for handing over to another member of a shared group."""
        return self.flights[self.flights_head :] + self.queue[self.queue_head :]


def encode_flight(flight: Delivery, version: int, now: int) -> bytes:
    """The packets of a flight for a client of ``version``."""
    run = flight.run
    properties = flight.properties
    if run.expires_at and version == 5:
        properties = properties + expiry_property(run.expires_at, now)
    return run.stamped(version, flight.qos, flight.retain, properties, flight.low, flight.high, flight.first)


def encode_again(flight: Delivery, pid: int, version: int, now: int) -> bytes:
    """One message of a flight with DUP set, for a resumed session."""
    run = flight.run
    properties = flight.properties
    if run.expires_at and version == 5:
        properties = properties + expiry_property(run.expires_at, now)
    index = flight.low + pid - flight.first
    packet = run.stamped(version, flight.qos, flight.retain, properties, index, index + 1, pid)
    return bytes((packet[0] | 0x08,)) + packet[1:]


def expiry_property(expires_at: int, now: int) -> bytes:
    """Message Expiry Interval with the time that is left, in whole seconds, at least one."""
    left = (expires_at - now + 999) // 1000
    return b"\x02" + max(left, 1).to_bytes(4, "big")
