"""The rules of session tables, as the replicas of the shards of ``$sessions`` hold them.

```
 after each turn:  a replica has moved on --> its state, by (shard, applied index) == that of all other replicas
                                         `--> decoded and encoded again == itself;  claims: epochs only grow
 in the end:       the log, from its checkpoint on, statement by statement --> == what the replica has
```

| rule | broken when |
| --- | --- |
| session machines | two replicas differ at one applied index; a checkpoint loses something; a replay ends elsewhere |
| session epochs | a later claim of a client has no higher epoch; a statement of an older epoch changes a record |
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import TYPE_CHECKING

from flockmq.durable.machine.machine import PartitionMachine
from flockmq.durable.machine.session_bodies import ClaimStatement, read_session_body, session_body, wall_ms_of
from flockmq.log.batch import SESSION, BatchView
from flockmq.raft.entry import entry_of
from flockmq.testing.simulation.nodes.rules import read_log
from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    from flockmq.durable.machine.session_bodies import SessionStatement
    from flockmq.durable.machine.session_table import SessionTable
    from flockmq.testing.simulation.nodes.process import DurableProcess
    from flockmq.testing.simulation.nodes.world import NodesWorld


class SessionMachineRules:
    """See the module."""

    def __init__(self, cluster: NodesWorld) -> None:
        self._cluster = cluster
        self._looked: dict[tuple[int, int, int], int] = {}
        """(Node, life, shard) -> the applied index at the last look."""
        self._states: dict[tuple[int, int], tuple[int, int]] = {}
        """(Shard, applied index) -> the first node that was there, and the checksum of its state."""
        self._epochs: dict[bytes, dict[int, int]] = {}
        """Client -> index of each claim that was seen -> its epoch."""

    def look_at(self, process: DurableProcess) -> None:
        """A turn of a node is over."""
        machines = process.durable.machines.by_group
        for group in process.durable.session_room.log.groups():
            machine = machines.get(group)
            place = (process.number, process.life, group)
            if machine is not None and self._looked.get(place) != machine.applied:
                self._looked[place] = machine.applied
                self._compare(process.number, machine)
                self._check_epochs(machine.sessions)

    def _compare(self, number: int, machine: PartitionMachine) -> None:
        state = machine.encode()
        place = (machine.group, machine.applied)
        first, checksum = self._states.setdefault(place, (number, zlib.crc32(state)))
        if checksum != zlib.crc32(state):
            text = f"shard {machine.group}: nodes {first} and {number} differ at index {machine.applied}"
            raise Violation("session machines", text)
        if first != number:
            self._cluster.count("session machines compared")
            return
        again = PartitionMachine(machine.group)
        again.decode(state)
        if again.encode() != state or _derived(again.sessions) != _derived(machine.sessions):
            text = f"shard {machine.group}: a checkpoint at index {machine.applied} of node {number} loses something"
            raise Violation("session machines", text)

    def _check_epochs(self, table: SessionTable) -> None:
        for client, record in table.records.items():
            claims = self._epochs.setdefault(client, {})
            if record.claimed_index in claims and claims[record.claimed_index] == record.epoch:
                continue
            claims[record.claimed_index] = record.epoch
            epochs = [claims[index] for index in sorted(claims)]
            if any(later <= earlier for earlier, later in pairwise(epochs)):
                raise Violation("session epochs", f"{client!r}: claims in order of their entries have {epochs}")

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
        entries, _ = read_log(replica.log)
        live = process.durable.machines.by_group[group]
        newest = {client: record.epoch for client, record in machine.sessions.records.items()}
        for index in range(machine.applied + 1, live.applied + 1):
            if index not in entries:
                raise Violation("session machines", f"shard {group}: node {process.number} has no entry {index}")
            entry = entry_of(entries[index])
            statements = read_session_body(BatchView(entry.data).body()) if entry.kind == SESSION else None
            for statement in statements or []:
                # As the machine does with a whole batch: the log's time first.
                clock_ms = max(machine.clock_ms, wall_ms_of(BatchView(entry.data).body()))
                self._follow(machine.sessions, statement, index, clock_ms, newest)
            state = machine.sessions
            machine.sessions = PartitionMachine(group).sessions  # the batch is in ``state`` already
            machine.apply(entry)
            machine.sessions = state
        if machine.encode() != live.encode():
            text = f"shard {group}: a replay up to index {live.applied} is not what node {process.number} has"
            raise Violation("session machines", text)
        self._cluster.count("session logs replayed")

    def _follow(
        self, table: SessionTable, statement: SessionStatement, index: int, clock_ms: int, newest: dict[bytes, int]
    ) -> None:
        client: bytes | None = getattr(statement, "client", None)
        epoch: int | None = getattr(statement, "epoch", None)
        is_claim = isinstance(statement, ClaimStatement)
        is_old = client is not None and epoch is not None and not is_claim and epoch < newest.get(client, 0)
        before = _record(table, client) if is_old else b""
        table.apply(session_body(clock_ms, [statement]), index, clock_ms)
        if is_old and _record(table, client) != before:
            text = f"{client!r}: {type(statement).__name__} of epoch {epoch} changes epoch {newest[client or b'']}"
            raise Violation("session epochs", text)
        self._cluster.count("session statements of older epochs", int(is_old))
        record = table.records.get(client) if client is not None else None
        if record is not None:
            newest[record.client] = max(record.epoch, newest.get(record.client, 0))


def _record(table: SessionTable, client: bytes | None) -> bytes:
    """The record of a client. Its wills stand beside it: each is of its own epoch, which may be an older one."""
    record = None if client is None else table.records.get(client)
    return b"" if record is None else record.encode()


def _derived(table: SessionTable) -> tuple[object, ...]:
    """What a table makes of its records."""
    owners = {owner: set(owned) for owner, owned in table.by_owner.items()}
    return dict(table.filters), dict(table.boots), table.connected, owners, table.bytes
