"""QoS 2 messages of logs to clients of persistent sessions: exactly once, whichever nodes die.

```
 flights with packet ids --> SEND2, applied --> PUBLISH        one statement of a session at a time: all that came
 PUBREC -------------------> REC2, applied ---> PUBREL         meanwhile goes into the next one; those of all sessions
 PUBCOMP ------------------> DONE2, with the next statement,   and of a turn are one entry of their shard
                             or within a second
 CONNECT --> attached: what the record lists, and what this node has in memory, become the same
             listed, and not in memory --> read from its log --> PUBLISH with DUP, the same packet id
```
| the record says | the session in memory says | so |
| --- | --- | --- |
| sent | in flight under that id | it is sent again |
| sent | received, PUBREL not sent | REC2, then PUBREL |
| sent | the id is another message's | it is done |
| sent | nothing | it is read from its log, and sent again |
| received | PUBREL sent | PUBREL again |
| received | nothing, or another message | it is done |
| nothing | in flight | SEND2, then PUBLISH |

A session without memory here is made of the record (``restoring.py``) before that.

The same statement tells the record of partitions that it does not know: of a topic that was declared, or got shards,
since the session subscribed. Otherwise a MARK would say nothing of these, and a next owner would begin with their first
record.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.session_bodies import SentStatement
from flockmq.durable.machine.session_sent import SENT_MAX, SentChange, SentMessage, SentMessages
from flockmq.durable.sessions.submitting import DONE, VOID
from flockmq.errors import Damaged, OffsetGone
from flockmq.mqtt import reasons
from flockmq.node.acknowledging import go_on
from flockmq.node.lifecycle import disconnect
from flockmq.routing.subscription import merge
from flockmq.routing.table import sequence_of
from flockmq.session.outbound import NOTHING, Delivery, LogSource, Outbound

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.deliver.delivery import Delivery as LogDelivery
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.durable.sessions.positions import Positions
    from flockmq.durable.sessions.submitting import SessionLog, StatementResult
    from flockmq.node.state import NodeState
    from flockmq.routing.subscription import Subscription
    from flockmq.session.session import Session

DONE_MS: Final = 1_000
"""Longest time that DONE2 waits for another statement of its session."""
DONE_IDS: Final = 256
"""Finished packet ids that are stated without waiting for ``DONE_MS``."""
RETRY_MS: Final = 500
VOID_MS: Final = 3_000
"""After this time of void statements, the node treats a session as moved or ended."""
READS_MAX: Final = 256
"""Messages of one session that the node reads again in one turn."""
WHY_TAKEN_OVER: Final = "Another connection uses this client id"
WHY_FULL: Final = "The record of the session lists too many messages"


class SessionSending:
    """The QoS 2 messages under way to one client. Fulfils ``ExactPort``."""

    def __init__(self, session: Session, kept: SentMessages, notice: Callable[[SessionSending, bool], None]) -> None:
        self.session = session
        self.kept = kept
        """The messages under way, as the record lists them."""
        self.unlisted: list[Delivery] = []
        """Flights that the record does not list yet."""
        self.waiting = 0
        """Messages in unlisted flights, and in flights of the statement under way."""
        self.received_ids: dict[int, None] = {}
        self.finished_ids: dict[int, None] = {}
        """Packet ids with news that no statement has said."""
        self.placed: set[int] = set()
        """Partitions in which the record knows where the session stands, or from where on it wants messages."""
        self.placed_as_of = -1
        """The generation of topics for which that was looked at."""
        self.unplaced: dict[int, int] = {}
        """Partitions that it is to be told of, and where the session stands there."""
        self.wants_reading = False
        self.is_busy = False
        """A statement is under way."""
        self.void_since = 0
        self._notice = notice

    # Calls of the session.

    def room(self) -> int:
        """See ``ExactPort``."""
        room = SENT_MAX - self.kept.count() - self.waiting
        if room <= 0 and self.finished_ids:
            self._notice(self, True)
        return max(room, 0)

    def hold(self, flight: Delivery) -> None:
        """See ``ExactPort``."""
        self.unlisted.append(flight)
        self.waiting += flight.high - flight.low
        self._notice(self, True)

    def received(self, packet_id: int) -> bool:
        """See ``ExactPort``."""
        if packet_id not in self.kept.by_id:
            return False
        self.received_ids[packet_id] = None
        self._notice(self, True)
        return True

    def finished(self, packet_id: int) -> None:
        """See ``ExactPort``."""
        if packet_id in self.kept.by_id:
            self.finished_ids[packet_id] = None
            self._notice(self, len(self.finished_ids) >= DONE_IDS)

    def unread(self) -> None:
        """See ``ExactPort``."""
        self.wants_reading = True
        self._notice(self, True)

    # Statements about the session.

    def has_news(self) -> bool:
        """Whether a client waits for something that is not said."""
        return bool(self.unlisted or self.received_ids or self.unplaced or len(self.finished_ids) >= DONE_IDS)

    def take(self, behind: dict[int, int]) -> tuple[SentChange, list[Delivery]]:
        """All changes since the last statement, with the flights to list. ``behind``: the unacknowledged offsets."""
        change = SentChange(self.kept.stamp + 1)
        change.received = list(self.received_ids)
        change.done = list(self.finished_ids)
        self.received_ids = {}
        self.finished_ids = {}
        flights: list[Delivery] = []
        for flight in self.unlisted:
            listed = listed_of(flight)
            if self.kept.count() + len(change.sent) + len(listed) > SENT_MAX:
                break
            change.sent.update(listed)
            flights.append(flight)
        del self.unlisted[: len(flights)]
        highest: dict[int, int] = {}
        for partition, offset in self.kept.done:
            highest[partition] = max(offset, highest.get(partition, 0))
        for messages in (self.kept.by_id, change.sent):
            for message in messages.values():
                highest[message.partition] = max(message.offset, highest.get(message.partition, 0))
        change.floors = {partition: behind.get(partition, offset + 1) for partition, offset in highest.items()}
        self.unplaced.update(change.floors)
        change.floors = self.unplaced
        self.unplaced = {}
        return change, flights

    # The record.

    def agree(self) -> None:
        """Reconcile the session in memory with the record; see the table of the module."""
        outbound = self.session.outbound
        if outbound is None:
            if not self.kept.by_id:
                return
            outbound = Outbound(self.session.queue_messages_max, self.session.queue_bytes_max)
            self.session.outbound = outbound
        mine = under_way(outbound)
        for packet_id in outbound.releasing:
            message = self.kept.by_id.get(packet_id)
            outbound.releasing[packet_id] = message is None or message.is_received
            if message is not None and not message.is_received:
                self.received_ids[packet_id] = None
        lost: dict[int, SentMessage] = {}
        for packet_id, message in self.kept.by_id.items():
            is_mine = mine.get(packet_id) == (message.partition, message.offset)
            if packet_id in outbound.releasing or (is_mine and not message.is_received):
                continue
            if message.is_received or outbound.find(packet_id) >= 0:
                self.finished_ids[packet_id] = None
            else:
                lost[packet_id] = message
        if lost:
            outbound.add_flights(unread_flights(lost))
        for flight in outbound.flights[outbound.flights_head :]:
            self._list(flight)
        if self.has_news() or self.finished_ids:
            self._notice(self, self.has_news())

    def _list(self, flight: Delivery) -> None:
        """Hold a flight that the record does not list."""
        flight.is_unlisted = False
        for packet_id, message in listed_of(flight).items():
            known = self.kept.by_id.get(packet_id)
            if known is None or (known.partition, known.offset) != (message.partition, message.offset):
                flight.is_unlisted = True
        if flight.is_unlisted:
            self.hold(flight)


class Sending:
    """All sessions of this node; see the module."""

    def __init__(
        self, node: NodeState, calls: PartitionCalls, log: SessionLog, delivery: LogDelivery, positions: Positions
    ) -> None:
        self._node = node
        self._calls = calls
        self._log = log
        self._readers = delivery.readers
        self._positions = positions
        self._due: dict[SessionSending, None] = {}
        """Sessions that need a statement in this turn."""
        self._lazy: dict[SessionSending, int] = {}
        """Sessions with finished ids alone, and the time of their next statement; the earliest first."""
        self._again: dict[SessionSending, tuple[SentStatement, list[Delivery]]] = {}
        """Statements without a result."""
        self._again_at = 0
        self._reading: dict[SessionSending, None] = {}

    # Sessions.

    def attached(self, session: Session, record: SessionRecord) -> None:
        """A client has its session; the record is as of its claim."""
        if not session.is_logged and not record.sent.by_id:
            session.exact = None
            return
        sending = SessionSending(session, record.sent.copy(), self._notice)
        sending.placed.update(record.positions)
        sending.placed.update(*[subscription.starts for subscription in record.subscriptions.values()])
        session.exact = sending
        sending.agree()

    def subscribed(self, session: Session, starts: dict[int, int]) -> None:
        """A SUBSCRIBE tells the record from where on a subscription wants messages."""
        sending = session.exact
        if isinstance(sending, SessionSending):
            sending.placed.update(starts)

    def place(self, session: Session) -> None:
        """Tell the record where a session stands in partitions that are new to it."""
        sending = session.exact
        generation = self._positions.generation()
        if not isinstance(sending, SessionSending) or sending.placed_as_of == generation:
            return
        if sending.placed.issuperset(self._positions.all_groups(session)):
            sending.placed_as_of = generation
            return
        fresh = {group: at for group, at in self._positions.of(session).items() if group not in sending.placed}
        if fresh:  # others begin when their streams do
            sending.placed.update(fresh)
            sending.unplaced.update(fresh)
            self._notice(sending, True)

    def detached(self, session: Session) -> None:
        """A session has lost its connection: state its finished ids at once."""
        sending = session.exact
        if isinstance(sending, SessionSending) and sending.finished_ids:
            self._notice(sending, True)

    def _notice(self, sending: SessionSending, is_urgent: bool) -> None:
        if not is_urgent:
            self._lazy.setdefault(sending, self._calls.now + DONE_MS)
        elif sending not in self._due:
            self._due[sending] = None
            self._calls.engine.wake()

    def _is_current(self, sending: SessionSending) -> bool:
        session = sending.session
        return session.exact is sending and self._node.sessions.get(session.client_id) is session

    # Turns.

    def flush(self, now: int) -> None:
        """A turn ends: submit new statements, read messages that must be sent again."""
        if self._due:
            due, self._due = self._due, {}
            for sending in due:
                self._lazy.pop(sending, None)
                if not self._is_current(sending):
                    continue
                if sending.wants_reading:
                    sending.wants_reading = False
                    self._reading[sending] = None
                if not sending.is_busy:
                    self._say(sending)
        if self._reading:
            for sending in list(self._reading):
                if self._read_some(sending, now):
                    del self._reading[sending]
            if not self._reading and not self._readers.active:
                self._readers.shared.clear()

    def tick(self, now: int) -> None:
        """Submit finished ids that have waited long enough, and statements without a result again."""
        for sending, due_at in list(self._lazy.items()):
            if due_at > now:
                break
            del self._lazy[sending]
            self._notice(sending, True)
        if self._again and now >= self._again_at:
            self._again_at = now + RETRY_MS
            again, self._again = self._again, {}
            for sending, (statement, flights) in again.items():
                if self._is_current(sending):
                    statement.epoch = sending.session.record_epoch
                    self._submit(sending, statement, flights)

    def _say(self, sending: SessionSending) -> None:
        session = sending.session
        is_needed = len(sending.unplaced) > 0
        change, flights = sending.take(self._positions.behind(session))
        if is_needed or not change.is_empty():
            sending.is_busy = True
            statement = SentStatement(session.client_id.encode(), session.record_epoch, change)
            self._submit(sending, statement, flights)

    def _submit(self, sending: SessionSending, statement: SentStatement, flights: list[Delivery]) -> None:
        said = self._log.say(statement.client, statement, len(statement.content()))
        said.then(partial(self._said, sending, statement, flights))

    def _said(
        self,
        sending: SessionSending,
        statement: SentStatement,
        flights: list[Delivery],
        result: StatementResult | None,
    ) -> None:
        if not self._is_current(sending):
            return
        if result is not None and result.code == DONE:
            sending.void_since = 0
            sending.is_busy = False
            self._applied(sending, statement.change, flights)
            return
        now = self._calls.now
        session = sending.session
        is_same = statement.epoch == session.record_epoch
        if result is not None and result.code != VOID:
            self._end(session, reasons.QUOTA_EXCEEDED, WHY_FULL)
        elif result is not None and is_same and sending.void_since and now - sending.void_since >= VOID_MS:
            self._end(session, reasons.SESSION_TAKEN_OVER, WHY_TAKEN_OVER)
        if result is not None and is_same:
            sending.void_since = sending.void_since or now
            if session.connection is None:
                return  # another node has the session; or the session is reconciled when its client is back
        self._again[sending] = (statement, flights)

    def _end(self, session: Session, reason: int, text: str) -> None:
        if session.connection is not None:
            disconnect(self._node, session.connection, reason, text, self._node.now)

    def _applied(self, sending: SessionSending, change: SentChange, flights: list[Delivery]) -> None:
        """The record has the statement: send the packets that waited for it."""
        session = sending.session
        outbound = session.outbound
        now = self._node.now
        sending.kept.apply(change)
        sending.waiting -= sum([flight.high - flight.low for flight in flights])
        for flight in flights:
            self._node.stats.dropped_queue += session.send_held(flight, now)
        if outbound is not None:
            released: list[bytes] = []
            for packet_id in change.received:
                if packet_id in outbound.releasing:
                    outbound.releasing[packet_id] = True
                    released.append(bytes((0x62, 2, packet_id >> 8, packet_id & 0xFF)))
            if released and session.connection is not None:
                session.connection.reply(b"".join(released))
        if session.connection is not None:
            go_on(self._node, session, now)
        if sending.has_news():
            self._notice(sending, True)
        elif sending.finished_ids:
            self._notice(sending, False)

    # Messages that another owner has sent.

    def _read_some(self, sending: SessionSending, now: int) -> bool:
        """Read messages to be sent again, as the client takes them; False: more messages are on their way."""
        session = sending.session
        for _ in range(READS_MAX):
            outbound = session.outbound
            if session.connection is None or outbound is None or not outbound.again or not self._is_current(sending):
                return True
            packet_id = outbound.again[-1]
            flight = outbound.flight_of(packet_id)
            if flight is not None and flight.is_unread() and not self._read(session, outbound, packet_id, flight):
                return False
            sending.wants_reading = False
            self._node.stats.dropped_queue += session.pump(now)
            if not sending.wants_reading:
                return True
        self._calls.engine.wake()
        return False

    def _read(self, session: Session, outbound: Outbound, packet_id: int, flight: Delivery) -> bool:
        """Read one message from its log, or find that retention removed it; False: the message is on its way."""
        source = flight.group
        assert isinstance(source, LogSource)
        group = source.partition
        offset = flight.offset_at(packet_id - flight.first)
        try:
            if not self._calls.layout.replicas_of(group):
                raise OffsetGone(offset + 1, f"Partition {group}")
            batches = self._readers.shared.read(group, offset)
        except (OffsetGone, Damaged):
            self._lose(session, outbound, packet_id, group, offset)
            return True
        except Exception as error:  # a bug; the later messages are sent all the same
            self._readers.note_fault(group, error)
            self._lose(session, outbound, packet_id, group, offset)
            return True
        for batch in batches or ():
            if batch.base <= offset < batch.end:
                at = offset - batch.base
                piece = batch.decoder().piece(at, at + 1, session.version, self._node.wall_offset_ms)
                flight.run = piece.run
                self._address(session, flight)
                outbound.recount(flight)
                return True
        return False

    def _lose(self, session: Session, outbound: Outbound, packet_id: int, group: int, offset: int) -> None:
        """A message is gone from its log. Act as after a PUBREC: the client may have the message, and know the id."""
        self._readers.note_gone(group, offset, offset + 1, session.client_id)
        catchup = self._readers.catching.get(session)
        if catchup is not None:
            catchup.gap += 1
        exact = session.exact
        if outbound.settle(packet_id, 2) and exact is not None:
            outbound.releasing[packet_id] = not exact.received(packet_id)

    def _address(self, session: Session, flight: Delivery) -> None:
        """Give a message the options of the subscriptions that match it now; there may be none."""
        matching: list[Subscription] = []
        for entry in self._node.table.matching(flight.run.topic):
            subscription = entry.of(session)
            if subscription is not None:
                matching.append(subscription)
        if matching:
            matching.sort(key=sequence_of)
            target = merge(matching)
            flight.properties = target.identifier_properties
            flight.retain = flight.run.retain and target.retain_as_published


def under_way(outbound: Outbound) -> dict[int, tuple[int, int]]:
    """By packet id, partition and offset of QoS 2 messages of logs that wait for their PUBREC."""
    found: dict[int, tuple[int, int]] = {}
    for flight in outbound.flights[outbound.flights_head :]:
        for packet_id, message in listed_of(flight).items():
            found[packet_id] = (message.partition, message.offset)
    return found


def listed_of(flight: Delivery) -> dict[int, SentMessage]:
    """By packet id, the entries of a record for a flight: each message by its own offset."""
    source = flight.group
    if flight.qos != 2 or not isinstance(source, LogSource):
        return {}
    return {
        flight.first + place: SentMessage(source.partition, flight.offset_at(place)) for place in flight.unsettled()
    }


def unread_flights(messages: dict[int, SentMessage]) -> list[Delivery]:
    """Flights of messages that are still to be read from their logs."""
    return [
        Delivery(NOTHING, 0, 1, 2, False, b"", LogSource(message.partition, message.offset), packet_id)
        for packet_id, message in messages.items()
    ]
