"""The rules of session tables, as the replicas of the shards of ``$sessions`` hold them.

```
 committed entries (archive.py) --> a table beside all nodes, statement by statement --> epochs, wills, positions
 after each turn:  a replica has moved on --> its state, by (shard, applied index) == that of the table beside
                                         `--> decoded and encoded again == itself
 in the end:       the log of each replica, from its checkpoint on --> == what the replica has
```

| rule | broken when |
| --- | --- |
| session machines | a replica differs at an applied index; a checkpoint loses something; a replay ends elsewhere |
| session epochs | a claim has no higher epoch than those before; a statement of an older epoch changes a record |
| session claims | a claim wins that its node made before it heard of the claim that it takes the session from |
| session present | a CLAIM says that there was a session, or was none, and the table says otherwise |
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Protocol

from flockmq.durable.machine.machine import PartitionMachine
from flockmq.durable.machine.session_bodies import (
    CLEAN_START,
    SAME_EPOCH,
    ClaimStatement,
    read_session_body,
    session_body,
    wall_ms_of,
)
from flockmq.log.batch import SESSION, BatchView
from flockmq.raft.entry import entry_of
from flockmq.testing.simulation.nodes.rules import read_log
from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    from flockmq.durable.machine.session_bodies import SessionStatement
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.durable.machine.session_table import SessionTable
    from flockmq.raft.entry import Entry
    from flockmq.testing.simulation.nodes.process import DurableProcess
    from flockmq.testing.simulation.nodes.world import NodesWorld


class Before:
    """A record before a statement."""

    def __init__(self, record: SessionRecord, clock_ms: int) -> None:
        self.epoch = record.epoch
        self.nonce = record.nonce
        self.claimed_index = record.claimed_index
        self.is_connected = record.is_connected
        self.is_over = record.has_expired(clock_ms) or not record.expiry_s
        """Whether a claim of another connection finds no session."""
        self.had_session = record.had_session


class Step:
    """One statement that was applied."""

    def __init__(
        self,
        statement: SessionStatement,
        index: int,
        clock_ms: int,
        before: dict[bytes, Before],
        table: SessionTable,
    ) -> None:
        self.statement = statement
        self.index = index
        self.clock_ms = clock_ms
        self.before = before
        """All records before it."""
        self.table = table
        """All records after it."""

    def granted(self) -> SessionRecord | None:
        """The record, if this was a claim that was granted."""
        statement = self.statement
        if not isinstance(statement, ClaimStatement):
            return None
        record = self.table.records.get(statement.client)
        is_granted = record is not None and record.nonce == statement.nonce and record.claimed_index == self.index
        known = self.before.get(statement.client)
        return record if is_granted and (known is None or known.nonce != statement.nonce) else None


class StepRule(Protocol):
    """Follows the statements of all shards."""

    def applied(self, group: int, step: Step) -> None:
        """A statement is applied."""


class SessionMachineRules:
    """See the module."""

    def __init__(self, cluster: NodesWorld, rules: list[StepRule]) -> None:
        self.tables: dict[int, PartitionMachine] = {}
        """By shard: what its replicas have to be."""
        self.present: dict[tuple[bytes, int], bool] = {}
        """(Client, owner) -> whether there was a session when the last claim of that owner was applied."""
        self.tenures: dict[bytes, tuple[int, int, int]] = {}
        """Client -> owner, its boot, and how many there were before."""
        self._cluster = cluster
        self._rules = rules
        self._states: dict[tuple[int, int], int] = {}
        """(Shard, applied index) -> the checksum of the state."""
        self._looked: dict[tuple[int, int, int], int] = {}
        """(Node, life, shard) -> the applied index at the last look."""
        self._newest: dict[bytes, int] = {}
        """Client -> the highest epoch that it ever had."""

    # What is committed.

    def committed(self, group: int, entry: Entry) -> None:
        """An entry is committed; see ``archive.Follower``."""
        machine = self.tables.get(group)
        if machine is None:
            if group not in self._cluster.session_groups():
                return
            machine = self.tables[group] = PartitionMachine(group)
        if entry.index != machine.applied + 1:
            raise Violation("session machines", f"shard {group}: entry {entry.index} follows {machine.applied}")
        self._apply(machine, entry)
        state = machine.encode()
        self._states[group, entry.index] = zlib.crc32(state)
        again = PartitionMachine(group)
        again.decode(state)
        if again.encode() != state or _derived(again.sessions) != _derived(machine.sessions):
            raise Violation("session machines", f"shard {group}: a checkpoint at index {entry.index} loses something")

    def _apply(self, machine: PartitionMachine, entry: Entry) -> None:
        body = BatchView(entry.data).body() if entry.kind == SESSION else b""
        clock_ms = max(machine.clock_ms, wall_ms_of(body))  # as the machine does with a whole batch: its time first
        for statement in (read_session_body(body) or []) if body else []:
            self._follow(machine, statement, entry.index, clock_ms)
        state = machine.sessions
        machine.sessions = PartitionMachine(machine.group).sessions  # the batch is in ``state`` already
        machine.apply(entry)
        machine.sessions = state

    def _follow(self, machine: PartitionMachine, statement: SessionStatement, index: int, clock_ms: int) -> None:
        table = machine.sessions
        before = {client: Before(record, clock_ms) for client, record in table.records.items()}
        client: bytes | None = getattr(statement, "client", None)
        epoch: int | None = getattr(statement, "epoch", None)
        is_claim = isinstance(statement, ClaimStatement)
        is_old = client is not None and epoch is not None and not is_claim and epoch < self._newest.get(client, 0)
        encoded = _record(table, client) if is_old else b""
        table.apply(session_body(clock_ms, [statement]), index, clock_ms)
        if is_old and _record(table, client) != encoded:
            text = (
                f"{client!r}: {type(statement).__name__} of epoch {epoch} changes epoch {self._newest[client or b'']}"
            )
            raise Violation("session epochs", text)
        self._cluster.count("session statements of older epochs", int(is_old))
        step = Step(statement, index, clock_ms, before, table)
        record = step.granted()
        if record is not None and isinstance(statement, ClaimStatement):
            self._check_claim(statement, record, before.get(record.client))
        for rule in self._rules:
            rule.applied(machine.group, step)

    def _check_claim(self, claim: ClaimStatement, record: SessionRecord, before: Before | None) -> None:
        self._cluster.count("session claims granted")
        newest = self._newest.get(record.client, 0)
        if record.epoch <= newest:
            raise Violation("session epochs", f"{record.client!r}: a claim gets epoch {record.epoch} after {newest}")
        self._newest[record.client] = record.epoch
        if before is not None and before.claimed_index > claim.seen:
            text = f"{record.client!r}: a claim that had seen {claim.seen} wins over the one at {before.claimed_index}"
            raise Violation("session claims", text)
        goes_on = before is not None and before.had_session and claim.flags & SAME_EPOCH > 0
        was_there = before is not None and (goes_on or not before.is_over) and not claim.flags & CLEAN_START
        if record.had_session != was_there:
            raise Violation("session present", f"{record.client!r}: the claim says {record.had_session}: {was_there}")
        self.present[record.client, record.owner] = was_there
        owner, boot, count = self.tenures.get(record.client, (0, 0, 0))
        if (owner, boot) != (record.owner, record.boot):
            self.tenures[record.client] = (record.owner, record.boot, count + 1)

    # What nodes have.

    def look_at(self, process: DurableProcess) -> None:
        """A turn of a node is over."""
        machines = process.durable.machines.by_group
        for group in self.tables:
            machine = machines.get(group)
            place = (process.number, process.life, group)
            if machine is not None and self._looked.get(place) != machine.applied:
                self._looked[place] = machine.applied
                self._compare(process.number, machine)

    def _compare(self, number: int, machine: PartitionMachine) -> None:
        wanted = self._states.get((machine.group, machine.applied))
        if wanted is None:
            return  # nothing is applied, or no node could read these entries yet
        self._cluster.count("session machines compared")
        if wanted != zlib.crc32(machine.encode()):
            text = f"shard {machine.group}: node {number} has another state at index {machine.applied}"
            raise Violation("session machines", text)

    # In the end.

    def check(self) -> None:
        """Replay the log of each replica."""
        for process in self._cluster.processes():
            for group in process.durable.session_room.log.groups():
                if group in process.durable.machines.by_group:
                    self._replay(process, group)

    def _replay(self, process: DurableProcess, group: int) -> None:
        replica = process.engine.replicas[group]
        content = replica.checkpoints.content()
        machine = PartitionMachine(group)
        if content is not None:
            machine.decode(content.state)
            self._cluster.count("session checkpoints")
        entries, _ = read_log(replica.log)
        live = process.durable.machines.by_group[group]
        for index in range(machine.applied + 1, live.applied + 1):
            if index not in entries:
                raise Violation("session machines", f"shard {group}: node {process.number} has no entry {index}")
            machine.apply(entry_of(entries[index]))
        if machine.encode() != live.encode():
            text = f"shard {group}: a replay up to index {live.applied} is not what node {process.number} has"
            raise Violation("session machines", text)
        self._cluster.count("session logs replayed")


def _record(table: SessionTable, client: bytes | None) -> bytes:
    """The record of a client. Its wills stand beside it: each is of its own epoch, which may be an older one."""
    record = None if client is None else table.records.get(client)
    return b"" if record is None else record.encode()


def _derived(table: SessionTable) -> tuple[object, ...]:
    """What a table makes of its records."""
    owners = {owner: set(owned) for owner, owned in table.by_owner.items()}
    return dict(table.filters), dict(table.boots), table.connected, owners, table.bytes
