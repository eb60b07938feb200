"""How messages become records that ``Appending.enter`` can't put into a batch as one run.

```
 run with properties, an expiry or QoS 2 --> message by message: key --> group, columns as they are needed
 run that is larger than a batch --> parts of it
 batch that was given back --> record by record, in their order
```
The raw MQTT 5 properties (without alias and expiry) are kept as they came, so that subscribers get them unchanged; the
user properties among them once more as columns, for readers that don't speak MQTT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.publish.answers import PublishAnswer
from flockmq.durable.publish.batches import Batch, Share, add_record
from flockmq.durable.publish.lanes import HeldRun, Lane
from flockmq.log.batch import BatchView
from flockmq.log.columns import RETAIN
from flockmq.mqtt.properties import IN_PUBLISH, decode_properties
from flockmq.raft.appends import BATCH_BYTES
from flockmq.routing.durable import BY_CLIENT, BY_PROPERTY, MANY_GROUPS, DurableTopic

if TYPE_CHECKING:
    from flockmq.durable.publish.answers import Answer
    from flockmq.durable.publish.appending import Appending
    from flockmq.log.batch import Record
    from flockmq.log.layout import UserProperty
    from flockmq.mqtt.run import Run
    from flockmq.session.connection import Connection

RECORD_OVERHEAD: Final = 1_024
"""More than what a batch of one record takes besides names, payload and properties."""
WANTS_PLACES: Final = (b"flockmq-ack", b"offset")
"""User property of a PUBLISH: say in its PUBACK where it is."""


def is_too_large(run: Run, client: bytes, bytes_max: int) -> bool:
    """Whether a message of the run would not fit into a batch alone."""
    names = len(run.topic) + len(client) + RECORD_OVERHEAD
    if 2 * len(run.wire) + names <= bytes_max:
        return False
    for index in range(run.count):
        properties, payload = run.parse(index)
        if len(payload) + 2 * len(properties) + names > bytes_max:
            return True
    return False


def enter_parts(owner: Appending, lane: Lane, held: HeldRun, run: Run) -> None:
    """Cut a run into parts that fit into batches."""
    if not run.ends:
        run.form(run.version, run.qos, run.retain, b"")  # finds where its messages end
    low = 0
    while low < run.count:
        start = run.ends[low - 1] if low else 0
        high = max(run.fitting(start + BATCH_BYTES), low + 1)
        owner.enter(lane, held, run.part(low, high), low)
        low = high


def enter_each(owner: Appending, lane: Lane, held: HeldRun, run: Run, first: int, group: int) -> None:
    """Put messages in one by one. ``group``: where those without a key of their own go."""
    topic = lane.topic
    answer = held.answer
    flags = run.qos | RETAIN if run.retain else run.qos
    own_epoch = held.epoch if run.qos == 2 else 0
    before = b""
    user: list[UserProperty] = []
    key: bytes | None = None
    writer = ShareWriter(owner, lane, held.answer, held.connection)
    for index in range(run.count):
        properties, payload = run.parse(index)
        if properties != before:
            before = properties
            user = user_properties(properties)
            key = key_of(topic, user)
            if answer is not None and WANTS_PLACES in user:
                answer.asks_for_places()
        packet_id = 0
        if own_epoch and held.connection is not None:
            at = run.pid_at[index]
            packet_id = run.wire[at] << 8 | run.wire[at + 1]
        size = len(payload) + 2 * len(properties)
        batch = writer.batch_for(group if key is None else topic.group_of_key(key), first + index, size)
        builder = batch.opened.builder
        builder.add(run.topic, held.client, held.wall_ms, flags, payload)
        builder.mark(key, packet_id, own_epoch, held.expires_at, properties, user)
    writer.finish()


def enter_again(owner: Appending, lane: Lane, given_back: Batch) -> None:
    """Put the records of a batch where they belong by now."""
    topic = lane.topic
    records = BatchView(given_back.data).records()
    for share in given_back.shares:
        answer = share.answer
        epoch = share.renew(owner, records[share.at].session_epoch)
        # A publisher that was told that no node knows sends it again. At QoS 2 the first copy counts, and a repeat may
        # wait for it.
        is_void = share.told and not (isinstance(answer, PublishAnswer) and answer.qos == 2)
        if not share.promised and (is_void or epoch < 0 or (answer is not None and answer.comes_again())):
            share.abandon(owner)
            continue
        places = [place_of(topic, records[share.at + index]) for index in range(share.count)]
        if not owner.may_enter(answer, places):
            share.abandon(owner)
            continue
        writer = ShareWriter(owner, lane, share.answer, share.connection)
        writer.told = share.told
        writer.promised = share.promised
        for index in range(share.count):
            record = records[share.at + index]
            record.session_epoch = epoch
            if record.flags & RETAIN:
                record.timestamp_ms = owner.after_retained(record.topic, record.timestamp_ms)
            batch = writer.batch_for(places[index], share.first + index, len(record.payload))
            add_record(batch.opened.builder, record, key_of(topic, record.user))
        writer.finish()


def place_of(topic: DurableTopic, record: Record) -> int:
    """The partition of a record."""
    own = key_of(topic, record.user)
    if own is None:
        own = record.client if topic.key == BY_CLIENT else record.topic
    return topic.group_of_key(own)


def places_of(topic: DurableTopic, run: Run, client: bytes) -> list[int]:
    """The partitions of a run's messages."""
    group = topic.group_of(run.topic)
    if group == MANY_GROUPS:
        group = topic.group_of_key(client if topic.key == BY_CLIENT else run.topic)
    if topic.key != BY_PROPERTY:
        return [group]
    found: dict[int, None] = {}
    for index in range(run.count):
        key = key_of(topic, user_properties(run.parse(index)[0]))
        found[group if key is None else topic.group_of_key(key)] = None
    return list(found)


class ShareWriter:
    """Keeps track of which batch has which records of a run that is put in piece by piece."""

    def __init__(self, owner: Appending, lane: Lane, answer: Answer | None, connection: Connection | None) -> None:
        self.owner = owner
        self.lane = lane
        self.answer = answer
        self.connection = connection
        self.told = False
        self.promised = False
        self._batch: Batch | None = None
        self._share: Share | None = None

    def batch_for(self, group: int, position: int, size: int) -> Batch:
        """Where the next record goes, which is at this position of its run. Add it before you call again."""
        batch = self.owner.batch(self.lane, group, size)
        share = self._share
        if batch is self._batch and share is not None:
            share.count += 1
            share.size += size
            return batch
        self.finish()
        at = batch.opened.builder.count
        self._batch = batch
        self._share = Share(self.answer, self.connection, position, at, 1, size)
        self._share.told = self.told
        self._share.promised = self.promised
        return batch

    def finish(self) -> None:
        """All records are in."""
        if self._batch is not None and self._share is not None:
            self.owner.share(self._batch, self._share)
        self._batch = None
        self._share = None


def user_properties(block: bytes) -> list[UserProperty]:
    """The user properties of a checked property block."""
    if not block:
        return []
    pairs = decode_properties(block, 0, len(block), IN_PUBLISH).user
    return [(name.encode(), value.encode()) for name, value in pairs]


def key_of(topic: DurableTopic, user: list[UserProperty]) -> bytes | None:
    """The key that a message has of its own: the value of a user property, if the topic goes by it and it is there."""
    if topic.key == BY_PROPERTY:
        for name, value in user:
            if name == topic.key_property:
                return value
    return None
