"""The outcomes of records, and the answers to their publishers.

```
 outcome of a batch --> Batch.heard --> each Share of it: records of one run, and the Answer that waits for them
                            |
                            |-- REPLAN: given back to its lane (lanes.py), to be entered again
                            `-- fenced: a batch with fewer records takes its place
```
| outcome            | ack level | publisher                                                        |
| ------------------ | --------- | ---------------------------------------------------------------- |
| TAKEN              | memory    | acknowledged (unless it is of QoS 2, or wants the offset: those  |
|                    |           | wait for the commit)                                             |
| STORED             | leader    | the same                                                         |
| COMMITTED          | all       | acknowledged, if it was not                                      |
| REFUSED            |           | failure code (MQTT 5), closed (3.1.1): certainly not in the log; |
|                    |           | at QoS 1 with DUP closed: an earlier copy may get there          |
| UNKNOWN            |           | closed, without any code for the message                         |
| REPLAN             |           | waits: its records are put where they belong by now              |
| ``fenced``         |           | closed, if a message is of an older epoch of its session than    |
|                    |           | the log wants; the others of the batch wait for its outcome      |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.publish.answers import Answer, PublishAnswer
from flockmq.durable.publish.unsettled import drop_ids, ids_noted, ids_of, settle_ids
from flockmq.log.batch import BatchBuilder, BatchView, Record, note_of
from flockmq.mqtt import reasons
from flockmq.raft.appends import COMMITTED, REFUSED, REPLAN, STORED, TAKEN, UNKNOWN, OpenBatch, Outcome

if TYPE_CHECKING:
    from flockmq.durable.publish.appending import Appending
    from flockmq.durable.publish.lanes import Lane
    from flockmq.routing.durable import DurableTopic
    from flockmq.session.connection import Connection


class Share:
    """Consecutive records of a batch that came with one run."""

    def __init__(
        self, answer: Answer | None, connection: Connection | None, first: int, at: int, count: int, size: int
    ) -> None:
        self.answer = answer
        self.connection = connection
        self.first = first
        """Position of the first record within its run."""
        self.at = at
        """Position of the first record within the batch."""
        self.count = count
        self.size = size
        self.told = False
        """The publisher has its answer."""
        self.promised = False
        """The answer was that the records are stored."""

    def refuse(self, owner: Appending, text: str, code: int = reasons.UNSPECIFIED_ERROR) -> None:
        """The records are in no log, and never will be."""
        answer = self.answer
        if isinstance(answer, PublishAnswer) and answer.unsettled is not None:
            self.drop_noted(owner)
            drop_ids(answer, self.first, self.count, text)
        if answer is not None and answer.has_copies:
            self.lose(owner)
        elif not self.told:
            self.told = True
            owner.node.stats.durable_refused += self.count
            if answer is not None:
                answer.refused(self.first, self.count, code, text)

    def lose(self, owner: Appending) -> None:
        """No node can say what becomes of the records."""
        if self.told:
            return
        self.told = True
        owner.node.stats.durable_unknown += self.count
        if self.answer is not None:
            self.answer.lost(self.first, self.count)

    def abandon(self, owner: Appending) -> None:
        """The records are in no log and must not get there: their publisher has to send them again, or has done so."""
        self.drop_noted(owner)
        answer = self.answer
        if isinstance(answer, PublishAnswer) and answer.unsettled is not None:
            drop_ids(answer, self.first, self.count, "")
        self.lose(owner)

    def drop_noted(self, owner: Appending) -> None:
        """QoS 2 ids are not in the log that they were on their way to."""
        answer = self.answer
        if owner.releases is not None and isinstance(answer, PublishAnswer) and answer.qos == 2:
            owner.releases.drop(answer.session, ids_noted(answer, self.first, self.count))

    def renew(self, owner: Appending, epoch: int) -> int:
        """The epoch by which messages that are in no log may get there; -1: they must not. ``epoch``: that they have.

        QoS 2 goes by the present epoch of its session, if that is still here, and if its ids still mean these messages.
        A session that was elsewhere since is another one: its other owner may have stored them.
        """
        answer = self.answer
        if not isinstance(answer, PublishAnswer) or answer.qos != 2:
            return epoch
        session = answer.session
        if owner.node.sessions.get(session.client_id) is not session:
            return -1
        if len(ids_noted(answer, self.first, self.count)) < self.count:
            return -1
        return epoch if owner.releases is None else owner.releases.tag(session)


class Batch:
    """An open batch, and whose records it holds. Implements ``raft.appends.BatchListener``."""

    def __init__(self, owner: Appending, lane: Lane, opened: OpenBatch, shard: int, number: int) -> None:
        self.owner = owner
        self.lane = lane
        self.opened = opened
        self.shard = shard
        self.number = number
        """Grows from batch to batch."""
        self.shares: list[Share] = []
        self.settled = False
        """The batch has an outcome; a later one may replace UNKNOWN."""
        self.data = b""
        """The records of a batch that was given back."""

    def has_promises(self) -> bool:
        """Whether some of its records were acknowledged before the batch had an outcome."""
        return any(share.promised for share in self.shares)

    def heard(self, batch: OpenBatch, outcome: Outcome) -> None:
        """See ``BatchListener``."""
        kind = outcome.kind
        if kind in (TAKEN, STORED):
            self._stored(-1)
            return
        lane = self.lane
        if kind == UNKNOWN and not outcome.final and self.has_promises():
            self._lost(False)  # what was acknowledged goes on, and nothing may overtake it
            return
        owner = self.owner
        if not self.settled:
            self.settled = True
            lane.unsettled -= 1
            if lane.batches.get(batch.group) is self:
                del lane.batches[batch.group]
            for share in self.shares:
                owner.relieve(share)
        if kind == COMMITTED:
            self._stored(outcome.offset)
        elif kind == REPLAN:
            self._give_back(outcome)
        elif kind == REFUSED:
            self.refused(why_refused(lane.topic, self.shard))
        elif kind == UNKNOWN:
            self._lost(outcome.final)
        if lane.given_back or lane.held:
            owner.go_on(lane)

    def _stored(self, base: int) -> None:
        """Acknowledge. Negative ``base``: the batch is not committed, and some publishers wait for the commit."""
        for share in self.shares:
            answer = share.answer
            if base < 0 and answer is not None and answer.waits_for_commit:
                continue
            if not share.told:
                share.told = True
                share.promised = True
                self.owner.node.stats.durable_stored += share.count
                if answer is not None:
                    answer.stored(share.first, share.count, self.shard, base + share.at if base >= 0 else -1)
            if isinstance(answer, PublishAnswer) and answer.unsettled is not None:
                settle_ids(answer, share.first, share.count)

    def _lost(self, final: bool) -> None:
        for share in self.shares:
            answer = share.answer
            if final and isinstance(answer, PublishAnswer) and answer.unsettled is not None:
                drop_ids(answer, share.first, share.count, "")
            share.lose(self.owner)

    def refused(self, text: str) -> None:
        """The whole batch is in no log, and never will be."""
        for share in self.shares:
            share.refuse(self.owner, text)

    def _give_back(self, outcome: Outcome) -> None:
        lane = self.lane
        self.owner.begin_to_wait(lane, self.owner.node.now)
        for share in self.shares:
            share.drop_noted(self.owner)
        self.data = outcome.batch
        lane.needs = max(lane.needs, outcome.offset)
        lane.given_back.append(self)

    def fenced(self, batch: OpenBatch, data: bytes, position: int) -> bytes:
        """See ``BatchListener``. Records that the client sent in that epoch, or before it, are taken out.

        The exception: its session is still here in a later epoch, and knows of nothing else under these ids. Then the
        records get the later epoch.
        """
        records = BatchView(data).records()
        named = self._share_at(position)
        answer = named.answer if named is not None else None
        shares = self.shares
        self.shares = []  # a leader that fences what is of no session is not to be believed in anything
        if isinstance(answer, PublishAnswer) and answer.qos == 2:
            client = records[position].client
            epoch = records[position].session_epoch
            for share in shares:
                if share is not named and not is_fenced(records[share.at], client, epoch):
                    self.shares.append(share)
                elif share.renew(self.owner, epoch) > epoch:
                    self._tag_again(batch, share, records)
                    self.shares.append(share)
        kept = with_fewer_records(data, records, self.shares)
        for share in shares:
            if share in self.shares:
                continue
            if not self.settled:
                self.owner.relieve(share)
            if isinstance(share.answer, PublishAnswer) and self.owner.releases is not None:
                self.owner.releases.fenced(share.answer.session, batch.group)
            share.abandon(self.owner)
        return kept

    def _share_at(self, position: int) -> Share | None:
        for share in self.shares:
            if share.at <= position < share.at + share.count:
                return share
        return None

    def _tag_again(self, batch: OpenBatch, share: Share, records: list[Record]) -> None:
        """The records of a share are of the present epoch now, and their ids known to be on their way to this group."""
        releases = self.owner.releases
        for record in records[share.at : share.at + share.count]:
            record.session_epoch = share.renew(self.owner, record.session_epoch)
        answer = share.answer
        if releases is not None and isinstance(answer, PublishAnswer):
            releases.note(answer.session, batch.group, ids_of(answer, share.first, share.count))


def with_fewer_records(data: bytes, records: list[Record], kept: list[Share]) -> bytes:
    """A batch with fewer records, or changed ones, and where in it they are; nothing if none are left."""
    builder = BatchBuilder()
    for share in kept:
        at = builder.count
        for record in records[share.at : share.at + share.count]:
            add_record(builder, record, record.key)
        share.at = at
    return builder.build(note=note_of(data)) if builder.count else b""


def add_record(builder: BatchBuilder, record: Record, key: bytes | None) -> None:
    """Add a record of another batch."""
    builder.add(record.topic, record.client, record.timestamp_ms, record.flags, record.payload)
    builder.mark(key, record.packet_id, record.session_epoch, record.expires_at, record.properties, record.user)


def is_fenced(record: Record, client: bytes, epoch: int) -> bool:
    """Whether a QoS 2 record is the client's, and of this epoch or an older one."""
    return 0 < record.session_epoch <= epoch and record.client == client


def name_of(topic: DurableTopic) -> str:
    """The name of a topic, for people."""
    return topic.name.decode("utf-8", "replace")


def why_refused(topic: DurableTopic, shard: int) -> str:
    """The answer to a publisher whose message is certainly not in the log."""
    return (
        f"Partition {shard} of topic {name_of(topic)} takes nothing now: a majority of its replicas can't be reached. "
        "The message was not stored; publish it again later."
    )


def number_of(batch: Batch) -> int:
    """Order batches as they were begun."""
    return batch.number
