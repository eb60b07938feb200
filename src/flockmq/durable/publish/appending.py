"""Messages of durable topics on their way into logs, and their outcomes on the way back to publishers.

```
 accept() --> append(topic, run, connection) --> enter: records --> the open batch of a group, one per turn
                       | PENDING                                                  |
                       v                                                          v
        the client's queue of acknowledgements <-- answers <-- outcome of the batch (batches.py)
```
A publisher that has much under way, or whose partition takes no more, is not read for a while. A connection that closes
while its messages are under way forgets about them; they get into the log all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flockmq.durable.publish.answers import Answer, CallAnswer, Place, PublishAnswer
from flockmq.durable.publish.batches import Batch, Share, name_of, number_of
from flockmq.durable.publish.entering import enter_again, enter_each, enter_parts, is_too_large, places_of
from flockmq.durable.publish.lanes import HeldRun, Lane
from flockmq.durable.publish.opening import Opening
from flockmq.durable.publish.pausing import Stopped
from flockmq.durable.publish.releasing import ReleasePort, release
from flockmq.durable.publish.unsettled import ids_of, note_unsettled, repeat_of
from flockmq.errors import RemoteProtocolError
from flockmq.log.columns import RETAIN
from flockmq.mqtt import reasons
from flockmq.mqtt.payloads import payloads_of, plain_acks
from flockmq.node.ports import NAMESPACE_FULL, PENDING, TOO_LARGE
from flockmq.node.publishing import SAID, forget_ids
from flockmq.raft.appends import BATCH_BYTES, Appends
from flockmq.routing.durable import BY_CLIENT, MANY_GROUPS
from flockmq.session.acks import AckQueue, PendingAck
from flockmq.session.outbound import PACKET_IDS

if TYPE_CHECKING:
    from flockmq.mqtt.run import Run
    from flockmq.node.state import NodeState
    from flockmq.routing.durable import DurableTopic
    from flockmq.session.connection import Connection
    from flockmq.session.session import Session

HELD_MESSAGES_MAX: Final = 16_384
HELD_BYTES_MAX: Final = 4 * 1024 * 1024
"""What a client may have under way before it is no longer read; it is read again at half of that."""
CLOCKS_DIFFER_MS_MAX: Final = 60_000
"""A clock that is further ahead of this node's own is wrong, and messages are not to be dated by it."""
WHY_UNCERTAIN: Final = "A partition can't be asked which messages it has already; connect again and send it again"
WHY_NO_PART: Final = "This node can't store the messages: it takes part in consensus no more."
WHY_STOPPED: Final = "This node can't store messages, nor say whether this one was before; connect to another node"


class Appending:
    """See the module. Implements ``node.ports.DurablePort``."""

    def __init__(
        self, node: NodeState, appends: Appends, entry_bytes_max: int, releases: ReleasePort | None = None
    ) -> None:
        self.node = node
        self.appends = appends
        self.releases = releases
        """Knows which QoS 2 ids are in which logs; None: no log keeps them."""
        self._opening = None if releases is None else Opening(self, releases)
        self.lanes: dict[bytes, Lane] = {}
        """By topic."""
        self._entry_bytes_max = entry_bytes_max
        self._number = 0
        self._waiting: dict[bytes, Lane] = {}
        """Lanes that wait for a plan, by topic."""
        self._laden = Stopped()
        """Clients that are not read because they have much under way."""
        self._crowded: dict[int, Stopped] = {}
        """Clients that are not read because their partition takes no more for now, by group."""

    # --- in ---

    def append(
        self,
        topic: DurableTopic,
        run: Run,
        connection: Connection | None,
        now: int,
        client_id: str = "",
        is_repeat: bool = False,
    ) -> int:
        """See ``DurablePort``."""
        code = self._refusal(topic, run)
        if code:
            if is_repeat and connection is not None and code == reasons.UNSPECIFIED_ERROR:
                self.node.stats.durable_unknown += run.count
                forget_ids(connection, run)
                raise RemoteProtocolError(code, WHY_STOPPED)
            self.node.stats.durable_refused += run.count
            return code
        answer: PublishAnswer | None = None
        client = client_id.encode()
        if connection is not None:
            session = connection.session
            if session is not None:
                client = session.client_id.encode()
                if run.qos == 2:
                    self._check_certain(topic, run, connection, session)
            acks = connection.acks
            if acks is None:
                acks = AckQueue()
                connection.acks = acks
            if run.qos and session is not None:
                check_receive_maximum(connection, acks, run)
                pending = PendingAck(plain_acks(run), run.count)
                acks.add(pending)
                waits = PublishAnswer(self.node, connection, session, run.qos, pending)
                waits.has_copies = is_repeat and run.qos == 1
                if run.qos == 2:
                    waits.captured = run if topic.is_capture else None
                    note_unsettled(waits)
                answer = waits
        held = self._held(run, answer, connection, client, now)
        if self._opening is None or answer is None or not held.epoch:
            self.admit(topic, held)
        elif self._opening.must_wait(answer.session, places_of(topic, run, client)):
            self._opening.hold(topic, held, answer)
        else:
            self.admit(topic, held)
        return PENDING

    def publish(
        self,
        topic: DurableTopic,
        run: Run,
        client: bytes,
        reply: Callable[[list[Place | str] | None], None],
        now: int,
    ) -> None:
        """Append from within this node. ``reply``: shard and offset of each message, or why it is certainly not stored;

        None when no node can say what became of one of them.
        """
        code = self._refusal(topic, run)
        if code:
            self.node.stats.durable_refused += run.count
            text = SAID[code][1] if code in SAID else WHY_NO_PART
            reply([text] * run.count)
            return
        self.admit(topic, self._held(run, CallAnswer(run.count, reply), None, client, now))

    def repeat(self, connection: Connection, packet_id: int) -> bool:
        """See ``DurablePort``."""
        return repeat_of(self.node, connection, packet_id)

    def release(self, connection: Connection, packet_ids: list[int], now: int) -> int:
        """See ``DurablePort``."""
        if self.releases is None:
            return reasons.SUCCESS
        return release(self.node, self.releases, connection, packet_ids, now)

    def _check_certain(self, topic: DurableTopic, run: Run, connection: Connection, session: Session) -> None:
        """QoS 2: append nothing while no node can say whether it was appended before; the client has to come back."""
        if self.releases is None:
            return
        for group in topic.groups:
            if not self.releases.may_append(session, group):
                forget_ids(connection, run)
                raise RemoteProtocolError(reasons.UNSPECIFIED_ERROR, WHY_UNCERTAIN)

    def _refusal(self, topic: DurableTopic, run: Run) -> int:
        """Why a run can't even be tried, as ``append`` says it; 0 when it can."""
        code = 0
        if self.appends.is_stopped():
            code = reasons.UNSPECIFIED_ERROR
        elif is_too_large(run, b"", self._entry_bytes_max):
            code = TOO_LARGE
        elif not topic.is_capture and self.node.spaces.full and topic.namespace in self.node.spaces.full:
            code = NAMESPACE_FULL
        self.node.stats.durable_in += run.count
        return code

    def _held(self, run: Run, answer: Answer | None, connection: Connection | None, client: bytes, now: int) -> HeldRun:
        wall_offset_ms = self.node.wall_offset_ms
        expires_at = run.expires_at + wall_offset_ms if run.expires_at else 0
        wall_ms = now + wall_offset_ms
        if run.retain:
            wall_ms = self.after_retained(run.topic, wall_ms)
        epoch = 0
        if self.releases is not None and isinstance(answer, PublishAnswer) and answer.qos == 2:
            epoch = self.releases.tag(answer.session)
        return HeldRun(run, answer, connection, client, epoch, wall_ms, expires_at)

    def admit(self, topic: DurableTopic, held: HeldRun) -> None:
        """Put a run into the lane of its topic."""
        lane = self.lanes.get(topic.id)
        if lane is None:
            lane = Lane(topic)
            self.lanes[topic.id] = lane
        if lane.must_wait(topic):
            self._hold(lane, held, self.node.now)
        else:
            self.enter(lane, held, held.run, 0)

    def may_enter(self, answer: Answer | None, groups: list[int]) -> bool:
        """Whether messages may go into these partitions, which were others when they came."""
        if self.releases is None or not isinstance(answer, PublishAnswer) or answer.qos != 2:
            return True
        return self.releases.is_open(answer.session, groups)

    def after_retained(self, topic: bytes, wall_ms: int) -> int:
        """The date of a message that is to be retained: after the one that is known of its topic name.

        Within a partition the offset decides which is newer. When shards are added a name may go to another partition,
        and the clocks of two nodes are not the same. What had to wait is dated again when it goes there: by then all
        that went before it is known here.
        """
        behind_ms = self.node.retained.written_ms(topic) - wall_ms
        return wall_ms + behind_ms + 1 if 0 <= behind_ms < CLOCKS_DIFFER_MS_MAX else wall_ms

    def _hold(self, lane: Lane, held: HeldRun, now: int) -> None:
        self.begin_to_wait(lane, now)
        lane.held.append(held)
        if held.connection is not None:
            lane.stopped.stop(held.connection)

    def enter(self, lane: Lane, held: HeldRun, run: Run, first: int) -> None:
        """Put a run, or the part of it that begins with message ``first``, into the open batches of its groups.

        Messages with one key, without properties and expiry, at QoS 0 or 1: payloads are cut out in one loop.
        """
        size = len(run.wire)
        if size > BATCH_BYTES and run.count > 1:
            enter_parts(self, lane, held, run)
            return
        topic = lane.topic
        group = topic.group_of(run.topic)
        if group == MANY_GROUPS:
            group = topic.group_of_key(held.client if topic.key == BY_CLIENT else run.topic)
        payloads = payloads_of(run) if run.qos < 2 and not held.expires_at else None
        if payloads is None:
            enter_each(self, lane, held, run, first, group)
            return
        batch = self.batch(lane, group, size)
        builder = batch.opened.builder
        at = builder.count
        flags = run.qos | RETAIN if run.retain else run.qos
        builder.add_run(run.topic, held.client, held.wall_ms, flags, payloads)
        self.share(batch, Share(held.answer, held.connection, first, at, run.count, size))

    def batch(self, lane: Lane, group: int, size: int) -> Batch:
        """Where ``size`` bytes of records for a group go, in this turn."""
        opened = self.appends.open_batch(group, size)
        batch = lane.batches.get(group)
        if batch is not None and batch.opened is opened:
            return batch
        self._number += 1
        batch = Batch(self, lane, opened, lane.topic.groups.index(group), self._number)
        opened.listener = batch
        opened.plan = self.node.table.topics.index
        lane.batches[group] = batch
        lane.unsettled += 1
        return batch

    def share(self, batch: Batch, share: Share) -> None:
        """Note that records are in a batch."""
        batch.shares.append(share)
        if share.promised:
            batch.opened.is_promised = True
        answer = share.answer
        if self.releases is not None and isinstance(answer, PublishAnswer) and answer.qos == 2:
            self.releases.note(answer.session, batch.opened.group, ids_of(answer, share.first, share.count))
        connection = share.connection
        if connection is None or connection.acks is None:
            return
        acks = connection.acks
        acks.held_messages += share.count
        acks.held_bytes += share.size
        if acks.held_bytes > HELD_BYTES_MAX or acks.held_messages > HELD_MESSAGES_MAX:
            self._laden.stop(connection)
        if not self.appends.has_room(batch.opened.group):
            self._crowded.setdefault(batch.opened.group, Stopped()).stop(connection)

    # --- other plans ---

    def topics_changed(self, now: int) -> None:
        """Another cluster state is known here."""
        for lane in list(self._waiting.values()):
            self.go_on(lane)
        known = self.node.table.topics.topics
        for identity in [one for one in self.lanes if one not in known]:
            lane = self.lanes[identity]
            if not lane.unsettled and not lane.is_waiting():
                del self.lanes[identity]
        self.tick(now)

    def tick(self, now: int) -> None:
        """Time passes: refuse messages that wait too long for a plan. What was acknowledged early goes on waiting."""
        for lane in list(self._waiting.values()):
            if now - lane.since < self.appends.give_up_ms:
                continue
            promised = [batch for batch in lane.given_back if batch.has_promises()]
            needs = lane.needs
            self._refuse_waiting(lane, why_without_plan(lane.topic))
            if promised:
                self.begin_to_wait(lane, now)
                lane.given_back = promised
                lane.needs = needs

    def begin_to_wait(self, lane: Lane, now: int) -> None:
        """Messages of this lane wait for a plan from now on, unless some did before."""
        if not lane.is_waiting():
            lane.since = now
            self._waiting[lane.topic.id] = lane

    def go_on(self, lane: Lane) -> None:
        """Put in again what waits, once all that was before it has its outcome and the plan is known."""
        topics = self.node.table.topics
        if lane.unsettled or topics.index < lane.needs:
            return
        topic = topics.topics.get(lane.topic.id)
        if topic is None or self.appends.is_stopped():
            self._refuse_waiting(lane, f"There is no durable topic {name_of(lane.topic)} any more; nothing was stored.")
            return
        lane.topic = topic
        given_back, held = self._stop_waiting(lane)
        for batch in given_back:
            enter_again(self, lane, batch)
        for run in held:
            epoch = run.whole().renew(self, run.epoch)
            places = places_of(topic, run.run, run.client)
            comes_again = run.answer is not None and run.answer.comes_again()
            if epoch < 0 or comes_again or not self.may_enter(run.answer, places):
                run.whole().abandon(self)
            else:
                run.epoch = epoch
                if run.run.retain:
                    run.wall_ms = self.after_retained(run.run.topic, run.wall_ms)
                self.enter(lane, run, run.run, 0)
        lane.stopped.let_all_go(self.node)

    def _stop_waiting(self, lane: Lane) -> tuple[list[Batch], list[HeldRun]]:
        """All that waits, in order."""
        given_back = sorted(lane.given_back, key=number_of)
        held = lane.held
        lane.given_back = []
        lane.held = []
        lane.needs = 0
        del self._waiting[lane.topic.id]
        return given_back, held

    def _refuse_waiting(self, lane: Lane, text: str) -> None:
        given_back, held = self._stop_waiting(lane)
        for batch in given_back:
            batch.refused(text)
        for run in held:
            run.whole().refuse(self, text)
        lane.stopped.let_all_go(self.node)

    # --- reading ---

    def relieve(self, share: Share) -> None:
        """Records have an outcome: their client has less under way."""
        connection = share.connection
        if connection is None or connection.acks is None:
            return
        acks = connection.acks
        acks.held_messages -= share.count
        acks.held_bytes -= share.size
        if acks.held_bytes * 2 <= HELD_BYTES_MAX and acks.held_messages * 2 <= HELD_MESSAGES_MAX:
            self._laden.let_go(self.node, connection)

    def on_room(self, group: int) -> None:
        """A group that had no room has some again: read from its clients again."""
        stopped = self._crowded.pop(group, None)
        if stopped is not None:
            stopped.let_all_go(self.node)


def check_receive_maximum(connection: Connection, acks: AckQueue, run: Run) -> None:
    """An MQTT 5 client has no more messages unacknowledged than it was allowed. QoS 2 is counted where it is taken."""
    if connection.version != 5 or run.qos != 1:
        return
    most = connection.limits.receive_max or PACKET_IDS
    session = connection.session
    unreleased = len(session.received) if session is not None and session.received is not None else 0
    if acks.messages + run.count + unreleased > most:
        raise RemoteProtocolError(
            reasons.RECEIVE_MAXIMUM_EXCEEDED, f"More than {most} messages wait for their acknowledgement"
        )


def why_without_plan(topic: DurableTopic) -> str:
    """The answer to a publisher when this node could not find out to which partition its message belongs."""
    return (
        f"Topic {name_of(topic)} gets other partitions, and this node could not find out in time where a message goes. "
        "The message was not stored; publish it again later."
    )
