"""The state behind a partition: where its cursors stand, which QoS 2 ids wait for PUBREL, sinks, sessions, groups.

```
 DATA with packet ids --> client -> epoch, ids          CURSOR --> name -> offset
 MARKER: RELEASE ids, ADOPT by an owner, FORGET         SINK, DATA that is part of a batch --> ``sink_table.py``
                                                        SESSION --> ``session_table.py``
                                                        GROUP --> ``group_table.py``
                                  |
          encode() --> tagged sections, part of the replica's checkpoint --> decode()
```
Made of committed entries alone: the same on every replica, byte for byte. Time is that of the log: the newest that any
entry said. What clients can grow is bounded; beyond it the client that was heard of least recently goes first.

An id belongs to a session *epoch*. Statements and records of an older epoch than a client's present one change nothing:
they were said by an owner that has been replaced. A client is known from its first ADOPT to its FORGET; the leader
takes QoS 2 records with ids of known clients alone (``fences.py``).
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.control_bodies import (
    ADOPT,
    COMMIT,
    DELETE,
    FORGET,
    RELEASE,
    RESET,
    Statement,
    read_cursor_body,
    read_marker_body,
)
from flockmq.durable.machine.group_bodies import read_group_body
from flockmq.durable.machine.group_table import GroupTable, decode_groups
from flockmq.durable.machine.session_bodies import wall_ms_of
from flockmq.durable.machine.session_table import SessionTable, decode_sessions
from flockmq.durable.machine.sink_bodies import read_part, read_sink_entry
from flockmq.durable.machine.sink_table import SinkTable, decode_sinks
from flockmq.log.batch import CURSOR, DATA, GROUP, MARKER, SESSION, SINK, BatchView
from flockmq.log.columns import PACKET_ID, SESSION_EPOCH
from flockmq.log.header import PART, columns_of, flags_of, latest_of
from flockmq.peering.fields import U32, U64, Reader, sized

if TYPE_CHECKING:
    from flockmq.raft.entry import Entry

MAGIC: Final = b"FLKP"
FORMAT: Final = 1
POSITION: Final = 1
CURSORS: Final = 2
CLIENTS: Final = 3
FENCES: Final = 4
SINKS: Final = 5
SESSIONS: Final = 6
GROUPS: Final = 7
"""Tags of sections. Those that this version does not know are kept as they are."""

CURSORS_MAX: Final = 65_536
CLIENTS_MAX: Final = 65_536
IDS_TOTAL_MAX: Final = 1_048_576
KEPT_MS: Final = 30 * 24 * 3_600_000
"""How long a client is known that no node says anything about: its session may have expired."""
SWEEP: Final = 4
"""Clients looked at for each entry that names any."""

_CLIENT: Final = struct.Struct("<QqH")
_SECTION: Final = struct.Struct("<HI")


class ClientIds:
    """Packet ids of one client that were stored and not released."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.until_ms = 0
        """Log time at which it may be forgotten."""
        self.ids: dict[int, int] = {}
        """Packet id -> epoch of its record."""


class PartitionMachine:
    """See the module."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.applied = 0
        self.end_offset = 0
        """Offset behind the last record that was applied."""
        self.clock_ms = 0
        self.cursors: dict[bytes, int] = {}
        self.clients: dict[bytes, ClientIds] = {}
        """Clients with unreleased ids, least recently heard of first."""
        self.fences: dict[bytes, ClientIds] = {}
        """Clients without ids; their epoch fences older owners. Least recently heard of first."""
        self.sinks = SinkTable()
        self.sessions = SessionTable()
        self.groups = GroupTable()
        self.clients_max = CLIENTS_MAX
        self.ids_total_max = IDS_TOTAL_MAX
        """The same on all replicas, or their states would differ."""
        self.ids_total = 0
        self.evicted = 0
        """Clients that had to go although their time was not over; not replicated."""
        self.unreadable = 0
        """Control batches that this version can't read; not replicated."""
        self.sections: dict[int, bytes] = {}
        """Sections of a checkpoint that this version does not know."""

    def apply(self, entry: Entry) -> None:
        """An entry is committed; they come one after the other."""
        if entry.index <= self.applied:
            return
        self.applied = entry.index
        self.end_offset = entry.next_offset
        kind = entry.kind
        if kind == DATA:
            mask = columns_of(entry.data)
            self.clock_ms = max(self.clock_ms, latest_of(entry.data))
            if mask & PACKET_ID and mask & SESSION_EPOCH:
                self._note_records(BatchView(entry.data))
            if flags_of(entry.data) & PART:
                self._note_part(entry)
        elif kind == CURSOR:
            self._move_cursors(BatchView(entry.data).body())
        elif kind == MARKER:
            self._mark(BatchView(entry.data).body())
        elif kind == SINK:
            self._sink(entry)
        elif kind == SESSION:
            self._session(entry)
        elif kind == GROUP:
            self._group(entry)

    # Sinks, sessions and consumer groups.

    def _sink(self, entry: Entry) -> None:
        body = read_sink_entry(entry.data)
        if body is None:
            self.unreadable += 1
            return
        self.clock_ms = max(self.clock_ms, body.wall_ms)
        self.sinks.apply(body, entry.index, len(entry.data), self.end_offset, self.clock_ms)

    def _note_part(self, entry: Entry) -> None:
        name = read_part(entry.data)
        if name is None:
            self.unreadable += 1
        else:
            self.sinks.part(name, entry.base_offset, entry.next_offset)

    def _session(self, entry: Entry) -> None:
        body = BatchView(entry.data).body()
        self.clock_ms = max(self.clock_ms, wall_ms_of(body))
        self.sessions.apply(body, entry.index, self.clock_ms)

    def _group(self, entry: Entry) -> None:
        body = read_group_body(BatchView(entry.data).body())
        if body is None:
            self.unreadable += 1
            return
        self.clock_ms = max(self.clock_ms, body.wall_ms)
        self.groups.apply(body, entry.index)

    # Cursors.

    def _move_cursors(self, body: bytes) -> None:
        found = read_cursor_body(body)
        if found is None:
            self.unreadable += 1
            return
        self.clock_ms = max(self.clock_ms, found.wall_ms)
        cursors = self.cursors
        for command in found.commands:
            name = command.name
            if command.what == DELETE:
                cursors.pop(name, None)
            elif name not in cursors and len(cursors) >= CURSORS_MAX:
                continue
            elif command.what == RESET or (command.what == COMMIT and command.offset > cursors.get(name, -1)):
                cursors[name] = command.offset

    # QoS 2 packet ids.

    def _note_records(self, view: BatchView) -> None:
        columns = view.columns()
        count = view.count
        data = columns.data
        spans = columns.spans
        ids: tuple[int, ...] = struct.unpack_from(f"<{count}H", data, spans["packet_id"][0])
        epochs: tuple[int, ...] = struct.unpack_from(f"<{count}Q", data, spans["session_epoch"][0])
        names: tuple[int, ...] = struct.unpack_from(f"<{count}i", data, spans["client"][0])
        clients = view.clients()
        for position in range(count):
            if ids[position] and epochs[position]:
                self._note_id(clients[names[position]], epochs[position], ids[position])
        self._sweep()

    def _note_id(self, client: bytes, epoch: int, packet_id: int) -> None:
        known = self._take(client)
        if known is None:
            known = ClientIds(epoch)
        if epoch >= known.epoch:  # else of an owner or session that has been replaced
            known.epoch = epoch
            if packet_id not in known.ids:
                self.ids_total += 1
            known.ids[packet_id] = epoch
        self._put(client, known)

    def _mark(self, body: bytes) -> None:
        found = read_marker_body(body)
        if found is None:
            self.unreadable += 1
            return
        self.clock_ms = max(self.clock_ms, found.wall_ms)
        for statement in found.statements:
            known = self._take(statement.client)
            if known is None and statement.what == ADOPT:
                known = ClientIds(statement.epoch)
            if known is None:
                continue
            if statement.epoch >= known.epoch:
                self._follow(statement, known)
            if known.ids or statement.what != FORGET or statement.epoch < known.epoch:
                self._put(statement.client, known)
        self._sweep()

    def _follow(self, statement: Statement, known: ClientIds) -> None:
        """A statement that is not older than what is known."""
        known.epoch = statement.epoch
        void = statement.ids
        if statement.what != RELEASE:
            void = [packet_id for packet_id, epoch in known.ids.items() if epoch < statement.since]
        for packet_id in void:
            if known.ids.pop(packet_id, 0):
                self.ids_total -= 1

    def _take(self, client: bytes) -> ClientIds | None:
        """What is known of a client, out of its place in the line."""
        known = self.clients.pop(client, None)
        return self.fences.pop(client, None) if known is None else known

    def _put(self, client: bytes, known: ClientIds) -> None:
        """Put the client back as the most recently heard of."""
        known.until_ms = self.clock_ms + KEPT_MS
        line = self.clients if known.ids else self.fences
        line[client] = known

    def _sweep(self) -> None:
        """Forget clients whose time is over, and those that there is no room for."""
        self._expire(self.clients)
        self._expire(self.fences)
        while len(self.fences) > self.clients_max:
            del self.fences[next(iter(self.fences))]
        while len(self.clients) > self.clients_max or self.ids_total > self.ids_total_max:
            self._remove(self.clients, next(iter(self.clients)))
            self.evicted += 1

    def _expire(self, line: dict[bytes, ClientIds]) -> None:
        for client in list(islice(line, SWEEP)):
            if line[client].until_ms <= self.clock_ms:
                self._remove(line, client)

    def _remove(self, line: dict[bytes, ClientIds], client: bytes) -> None:
        self.ids_total -= len(line.pop(client).ids)

    def client(self, client: bytes) -> ClientIds | None:
        """What is known of a client here; None: no owner of it publishes here at QoS 2."""
        known = self.clients.get(client)
        return self.fences.get(client) if known is None else known

    def epoch_of(self, client: bytes) -> int:
        """The epoch under which a client was heard of last; 0 when it is not known here."""
        known = self.client(client)
        return 0 if known is None else known.epoch

    # Checkpoints.

    def encode(self) -> bytes:
        """For a checkpoint: the same bytes on every replica."""
        sections = dict(self.sections)
        sections[POSITION] = U64.pack(self.applied) + U64.pack(self.end_offset) + U64.pack(self.clock_ms)
        cursors = [sized(name) + U64.pack(self.cursors[name]) for name in sorted(self.cursors)]
        sections[CURSORS] = U32.pack(len(cursors)) + b"".join(cursors)
        sections[CLIENTS] = _encode_clients(self.clients)
        sections[FENCES] = _encode_clients(self.fences)
        if not self.sinks.is_empty():
            sections[SINKS] = self.sinks.encode()
        if not self.sessions.is_empty():
            sections[SESSIONS] = self.sessions.encode()
        if not self.groups.is_empty():
            sections[GROUPS] = self.groups.encode()
        parts = [MAGIC, bytes((FORMAT,))]
        for tag in sorted(sections):
            parts.append(_SECTION.pack(tag, len(sections[tag])))
            parts.append(sections[tag])
        return b"".join(parts)

    def decode(self, data: bytes) -> None:
        """Take on the state of a checkpoint; empty bytes are the beginning. RemoteProtocolError: it is none."""
        self.applied = 0
        self.end_offset = 0
        self.clock_ms = 0
        self.cursors = {}
        self.clients = {}
        self.fences = {}
        self.sinks = SinkTable()
        self.sessions = SessionTable()
        self.groups = GroupTable()
        self.ids_total = 0
        self.sections = {}
        if not data:
            return
        if data[:4] != MAGIC or data[4:5] != bytes((FORMAT,)):
            raise ValueError("These bytes are not the state of a partition, or a newer FlockMQ wrote them.")
        reader = Reader(data)
        reader.skip(5)
        while reader.pos < reader.end:
            tag, length = _SECTION.unpack_from(data, reader.skip(_SECTION.size))
            at = reader.skip(length)
            self._read_section(tag, data[at : at + length])

    def _read_section(self, tag: int, content: bytes) -> None:
        reader = Reader(content)
        if tag == POSITION:
            self.applied = reader.u64()
            self.end_offset = reader.u64()
            self.clock_ms = reader.u64()
        elif tag == CURSORS:
            for _ in range(reader.count(CURSORS_MAX, 10)):
                name = reader.sized()
                self.cursors[name] = reader.u64()
        elif tag == CLIENTS:
            self._read_clients(reader, self.clients)
        elif tag == FENCES:
            self._read_clients(reader, self.fences)
        elif tag == SINKS:
            self.sinks = decode_sinks(content)
        elif tag == SESSIONS:
            self.sessions = decode_sessions(content, self.applied)  # POSITION has a lower tag: it was read before
        elif tag == GROUPS:
            self.groups = decode_groups(content)
        else:
            self.sections[tag] = content

    def _read_clients(self, reader: Reader, line: dict[bytes, ClientIds]) -> None:
        for _ in range(reader.count(CLIENTS_MAX, 2 + _CLIENT.size)):
            client = reader.sized()
            epoch, until_ms, count = _CLIENT.unpack_from(reader.data, reader.skip(_CLIENT.size))
            known = ClientIds(epoch)
            known.until_ms = until_ms
            ids: tuple[int, ...] = struct.unpack_from(f"<{count}H", reader.data, reader.skip(2 * count))
            epochs: tuple[int, ...] = struct.unpack_from(f"<{count}Q", reader.data, reader.skip(8 * count))
            known.ids = dict(zip(ids, epochs, strict=True))
            self.ids_total += len(known.ids)
            line[client] = known


def _encode_clients(line: dict[bytes, ClientIds]) -> bytes:
    parts = [U32.pack(len(line))]
    for client, known in line.items():
        ids = sorted(known.ids)
        parts.append(sized(client) + _CLIENT.pack(known.epoch, known.until_ms, len(ids)))
        parts.append(struct.pack(f"<{len(ids)}H", *ids))
        parts.append(struct.pack(f"<{len(ids)}Q", *[known.ids[packet_id] for packet_id in ids]))
    return b"".join(parts)
