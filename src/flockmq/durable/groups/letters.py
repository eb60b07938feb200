"""Dead letters are published by the leader of the partition that they come from: once, into the topic of the group.

```
 DEAD (target, letters), committed --> a run: offsets, reasons --parts--> the target's leader reads the records and
                                       appends them as the sender "partition", sequence: index of the entry, part
            |                          a part that another leader sent before is not appended again
            `-- all parts are there --> BURIED
```
A run is cut into parts by the size of its records, in the same way by every leader. Records that retention removed
meanwhile, against the hold of the run, are lost and noted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.dead_letters import DeadLetter, dead_name, dead_properties
from flockmq.durable.calls import LATER, OK, REFUSED, Reply
from flockmq.durable.groups.messages import TEXT_BYTES_MAX
from flockmq.durable.machine.group_bodies import Death, burying, read_death
from flockmq.errors import FlockError, OffsetGone
from flockmq.log.batch import BatchBuilder, BatchView
from flockmq.log.columns import QOS_MASK
from flockmq.mqtt.properties import IN_PUBLISH, Properties, decode_properties, encode_block
from flockmq.peering.fields import U32, U64, sized
from flockmq.peering.kinds import GROUP_LETTERS
from flockmq.raft.senders import run_note
from flockmq.tasks import Sleep

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.logs.logs import Logs
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.group_table import Letter
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.state.group_directory import GroupDirectory
    from flockmq.log.batch import Record
    from flockmq.node.events import EventList
    from flockmq.peering.fields import Reader
    from flockmq.raft.entry import Entry
    from flockmq.tasks import Task

PART_LETTERS_MAX: Final = 200
PART_BYTES_MAX: Final = 256 * 1_024
"""About how large a part may become; a larger record is a part alone."""
PARTS_BITS: Final = 16
APPEND_MS: Final = 3_000
LOOK_MS: Final = 10
READ_BYTES: Final = 262_144
NO_NODE: Final = 1 << 63
"""Set in the number of a sender that is a partition, not a node."""
NO_BOOT: Final = 0


class Letters:
    """See the module. A listener of ``Machines``."""

    def __init__(
        self,
        calls: PartitionCalls,
        machines: Machines,
        control: Control,
        logs: Logs,
        directory: GroupDirectory,
        events: EventList,
    ) -> None:
        self._calls = calls
        self._engine = calls.engine
        self._machines = machines
        self._control = control
        self._logs = logs
        self._directory = directory
        self._events = events
        self._sending: set[tuple[int, int]] = set()
        """(partition, target) of runs that are on their way."""
        self.lost = 0
        """Dead letters whose record or topic was gone."""
        calls.serve_leader(GROUP_LETTERS, self._on_part)

    def applied(self, partition: int, entries: list[Entry]) -> None:  # noqa: ARG002
        """The partition has moved on: there may be a run."""
        if self._machines.by_group[partition].groups.runs:
            self._look(partition)

    def closed(self, partition: int) -> None:
        """There is no replica of this partition here any more."""

    def tick(self, now: int) -> None:  # noqa: ARG002
        """Look for runs of earlier leaders, and those that failed."""
        for partition, machine in self._machines.by_group.items():
            if machine.groups.runs:
                self._look(partition)

    def _look(self, partition: int) -> None:
        if not self._engine.knows_all(partition):
            return
        for target in sorted({target for target, _ in self._machines.by_group[partition].groups.runs}):
            if (partition, target) not in self._sending:
                self._sending.add((partition, target))
                self._calls.tasks.start("dead letters", self._send(partition, target))

    # At the leader of the records.

    def _send(self, partition: int, target: int) -> Task[None]:
        """Send the runs for a target, the oldest first; what fails is tried again at a later tick."""
        try:
            while partition in self._machines.by_group and self._engine.knows_all(partition):
                runs = self._machines.by_group[partition].groups.runs
                sequences = [sequence for known, sequence in runs if known == target]
                if not sequences or not (yield from self._send_run(partition, target, min(sequences))):
                    return
        finally:
            self._sending.discard((partition, target))

    def _send_run(self, partition: int, target: int, sequence: int) -> Task[bool]:
        letters = list(self._machines.by_group[partition].groups.runs[target, sequence])
        if self._calls.layout.replicas_of(target):
            parts = yield from self._parts(partition, letters)
            if parts is None:
                return False
            for number, part in enumerate(parts):
                body = self._encode(partition, (sequence << PARTS_BITS) + number, part)
                reply = yield from self._calls.ask_leader(target, GROUP_LETTERS, body, APPEND_MS)
                if reply.code != OK:
                    return False
        else:
            self._note_lost(partition, len(letters), "their topic was deleted")
        return (yield from self._control.settle(partition, [burying(target, sequence)], self._calls.now))

    def _parts(self, partition: int, letters: list[Letter]) -> Task[list[list[Letter]] | None]:
        """The letters of a run, by the size of their records; None: those can't be read now."""
        parts: list[list[Letter]] = [[]]
        size = 0
        for letter in letters:
            found = yield from self._record(partition, letter.death.offset)
            if isinstance(found, OffsetGone):
                continue
            if isinstance(found, FlockError):
                return None
            size += len(found.payload) + len(found.properties) + len(found.topic)
            if parts[-1] and (size > PART_BYTES_MAX or len(parts[-1]) >= PART_LETTERS_MAX):
                parts.append([])
                size = len(found.payload)
            parts[-1].append(letter)
        return [part for part in parts if part]

    def _record(self, partition: int, offset: int) -> Task[Record | FlockError]:
        fetched = yield from self._logs.fetch(partition, offset, READ_BYTES)
        if fetched.error is not None:
            if isinstance(fetched.error, OffsetGone):
                self._note_lost(partition, 1, "retention removed their records")
            return fetched.error
        for batch in fetched.batches:
            view = BatchView(batch)
            if view.base_offset <= offset < view.next_offset:
                return view.record(offset - view.base_offset)
        return FlockError("This replica does not have the record of a dead letter yet.")

    def _note_lost(self, partition: int, count: int, why: str) -> None:
        self.lost += count
        self._events.note("dead_letters_lost", {"group": partition, "letters": count, "reason": why})

    def _encode(self, partition: int, sequence: int, letters: list[Letter]) -> bytes:
        place = self._directory.place_of(partition)
        topic = "" if place is None else place.topic.name
        shard = 0 if place is None else place.shard
        parts = [
            U64.pack(partition),
            U64.pack(sequence),
            sized(topic.encode()),
            U32.pack(shard),
            U32.pack(len(letters)),
        ]
        for letter in letters:
            group = self._directory.group(letter.group)
            namespace = "default" if group is None else group.namespace
            name = "" if group is None else group.name
            parts.append(sized(namespace.encode()) + sized(name.encode()) + letter.death.encode())
        return b"".join(parts)

    # At the leader of the topic of dead letters.

    def _on_part(self, target: int, reader: Reader) -> Task[Reply]:
        """Append the letters, unless the log has them; answered when they are committed."""
        partition = reader.u64()
        sequence = reader.number()
        topic = reader.text()
        shard = reader.u32()
        letters: list[tuple[str, str, Death]] = []
        for _ in range(reader.count(PART_LETTERS_MAX, 20)):
            namespace = reader.text()
            letters.append((namespace, reader.text(), read_death(reader)))
        reader.finish()
        builder = BatchBuilder()
        for namespace, group, death in letters:
            found = yield from self._record(partition, death.offset)
            if isinstance(found, OffsetGone):
                continue
            if isinstance(found, FlockError):
                return Reply(LATER)
            self._add(builder, namespace, group, topic, shard, found, death)
        if not sequence:
            return Reply(REFUSED)
        if not builder.count:
            return Reply(OK)
        sender = NO_NODE | partition
        batch = builder.build(note=run_note(sender, NO_BOOT, sequence))
        until = self._calls.now + APPEND_MS
        while self._calls.now < until and self._engine.is_leader(target):
            if self._engine.append_once(target, sender, sequence, batch):
                return Reply(OK)
            yield Sleep(LOOK_MS)
        return Reply(LATER)

    def _add(
        self, builder: BatchBuilder, namespace: str, group: str, topic: str, shard: int, record: Record, death: Death
    ) -> None:
        reason = death.reason[:TEXT_BYTES_MAX].decode("utf-8", "replace")
        member = death.member.decode("utf-8", "replace")
        letter = DeadLetter(group, topic, shard, death.offset, death.deliveries, reason, member)
        more = dead_properties(letter)
        block = record.properties
        properties = decode_properties(block, 0, len(block), IN_PUBLISH) if block else Properties()
        if not properties.user:
            properties.user = [(_text(name), _text(value)) for name, value in record.user]
        properties.user += [(_text(name), _text(value)) for name, value in more]
        name = dead_name(namespace, group, record.topic)
        wall_ms = self._control.wall.at(self._calls.now)
        builder.add(name, record.client, wall_ms, record.flags & QOS_MASK, record.payload)
        builder.mark(record.key, 0, 0, 0, encode_block(properties), record.user + more)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
