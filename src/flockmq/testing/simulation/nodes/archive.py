"""All that was ever committed to any partition, taken down as nodes apply it: retention and lost stores take nothing.

```
 a turn of a node is over --> entries that it has applied, and that no node had applied before --> records by offset
                                                                                              `--> who follows entries
```
| rule | broken when |
| --- | --- |
| adopted | behind an ADOPT, a record of the client with an older epoch is in that log |
| one record an id | a message of QoS 2 of a persistent publisher is in logs twice; or in none, though its PUBREC came |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from flockmq.cluster.dead_letters import DEAD_NAME
from flockmq.durable.machine.control_bodies import ADOPT, read_marker_body
from flockmq.log.batch import DATA, MARKER, BatchView
from flockmq.log.errors import DamageError
from flockmq.raft.entry import entry_of
from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    from flockmq.raft.entry import Entry
    from flockmq.testing.simulation.nodes.ledger import Ledger
    from flockmq.testing.simulation.nodes.process import DurableProcess
    from flockmq.testing.simulation.nodes.world import NodesWorld

READ_BYTES: Final = 1 << 20
QOS: Final = 3
"""Mask for the flags of a record."""


class Record:
    """One record of a log."""

    def __init__(self, topic: bytes, payload: bytes, qos: int) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos


class Follower(Protocol):
    """Hears of all committed entries of all partitions, once and in the order of each log."""

    def committed(self, group: int, entry: Entry) -> None:
        """An entry is committed."""


class Archive:
    """See the module."""

    def __init__(self, cluster: NodesWorld, followers: list[Follower]) -> None:
        self.records: dict[int, list[Record]] = {}
        """By partition and offset."""
        self.places: dict[bytes, list[tuple[int, int]]] = {}
        """By payload: all partitions and offsets where it stands."""
        self._cluster = cluster
        self._followers = followers
        self._next: dict[int, int] = {}
        """By partition: the first entry that was not taken down."""
        self._adopted: dict[tuple[int, bytes], int] = {}
        """(Partition, client) -> the highest epoch of an ADOPT."""

    def look_at(self, process: DurableProcess) -> None:
        """A turn of a node is over."""
        for group, machine in process.durable.machines.by_group.items():
            first = self._next.get(group, 1)
            if machine.applied >= first:
                self._take_down(process, group, first, machine.applied)

    def _take_down(self, process: DurableProcess, group: int, first: int, last: int) -> None:
        log = process.engine.replicas[group].log
        if log.first_index() > first:
            return  # it began with a checkpoint: another node has these entries, or had them
        try:
            while first <= last:
                for data in log.entries(first, last + 1, READ_BYTES):
                    self._take(group, entry_of(data))
                    first += 1
        except DamageError:
            return

    def _take(self, group: int, entry: Entry) -> None:
        self._next[group] = entry.index + 1
        if entry.kind == DATA:
            self._take_records(group, entry)
        elif entry.kind == MARKER:
            found = read_marker_body(BatchView(entry.data).body())
            for statement in [] if found is None else found.statements:
                if statement.what == ADOPT:
                    key = (group, statement.client)
                    self._adopted[key] = max(statement.epoch, self._adopted.get(key, 0))
        for follower in self._followers:
            follower.committed(group, entry)

    def _take_records(self, group: int, entry: Entry) -> None:
        records = self.records.setdefault(group, [])
        if entry.base_offset != len(records):
            raise Violation(
                "offsets", f"group {group}: entry {entry.index} is at {entry.base_offset}, not {len(records)}"
            )
        for one in BatchView(entry.data).records():
            if not one.topic.startswith(DEAD_NAME):  # a dead letter is no message of its publisher
                self.places.setdefault(one.payload, []).append((group, len(records)))
            records.append(Record(one.topic, one.payload, one.flags & QOS))
            adopted = self._adopted.get((group, one.client or b""), 0)
            if 0 < one.session_epoch < adopted:
                text = f"group {group}: {one.payload!r} of epoch {one.session_epoch} stands behind ADOPT {adopted}"
                raise Violation("adopted", text)
            self._cluster.count("QoS 2 records of persistent publishers", int(one.session_epoch > 0))

    def end(self, group: int) -> int:
        """The offset behind all that is committed."""
        return len(self.records.get(group, ()))

    # In the end.

    def check(self, ledgers: list[Ledger]) -> None:
        """Publishers of QoS 2 are persistent: each message is one use of a packet id."""
        for ledger in ledgers:
            for payload, (_, qos) in ledger.messages.items():
                places = self.places.get(payload, [])
                if qos == 2 and len(places) > 1:
                    raise Violation("one record an id", f"{payload!r} stands in logs at {places}")
                if qos == 2 and payload in ledger.promised and not places:
                    raise Violation("one record an id", f"{payload!r} is in no log, though its PUBREC came")
