"""Clients that take every outcome at its word, and write down every promise they get.

```
 writer: runs --> the node it is connected to --> the leader -->   COMMITTED: a promise, REFUSED: a promise, too
                                                                    UNKNOWN, or the node dies: connect elsewhere
 reader: reads --> every node that believes to lead --> an index, held against what was promised when the read began
```
Records carry the name of their sender and a number. Order is promised per connection: after an unknown outcome a
writer goes on under a new name, since records that it sent before may still arrive.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.log.batch import BatchBuilder
from flockmq.raft.senders import COMMITTED, REFUSED
from flockmq.raft.state import LEADER

if TYPE_CHECKING:
    from flockmq.testing.simulation.consensus.cluster import Cluster

WRITE_GAP_US: Final = 120_000
READ_GAP_US: Final = 120_000
"""Mean time between two runs of a writer, and between two rounds of a reader."""
RUNS_OPEN_MAX: Final = 4
RECORDS: Final = (1, 1, 2, 5)


class Writer:
    """Writes to one group for as long as the simulation lasts."""

    def __init__(self, cluster: Cluster, name: bytes, group: int, rng: random.Random) -> None:
        self.node = 0
        self._cluster = cluster
        self._history = cluster.histories[group]
        self._name = name
        self._group = group
        self._rng = rng
        self._session = 0
        self._number = 0
        self._open = 0
        self._connect()
        self._think()

    def _connect(self) -> None:
        self.node = self._rng.choice(list(self._cluster.nodes))
        self._session += 1
        self._open = 0

    def _think(self) -> None:
        self._cluster.queue.after(int(self._rng.random() * 2 * WRITE_GAP_US), self._write)

    def _write(self) -> None:
        self._think()
        node = self._cluster.nodes[self.node]
        process = node.process
        if process is None:
            self._connect()
        elif self._open < RUNS_OPEN_MAX:
            node.do(process.life, self._submit, self._session)

    def _submit(self, session: int) -> None:
        process = self._cluster.nodes[self.node].process
        if session != self._session or process is None:
            return
        builder = BatchBuilder()
        sender = b"%s.%d" % (self._name, session)
        payloads = []
        for _ in range(self._rng.choice(RECORDS)):
            self._number += 1
            payloads.append(b"%s %d" % (sender, self._number))
            builder.add(b"t", sender, self._cluster.queue.now // 1_000, 1, payloads[-1])
        self._history.submitted.update(payloads)
        self._open += 1
        if not process.submit(self._group, builder, partial(self._told, session, payloads)):
            self._told(session, payloads, REFUSED, 0)

    def _told(self, session: int, payloads: list[bytes], outcome: int, offset: int) -> None:
        if session == self._session:
            self._open -= 1
        if outcome == COMMITTED:
            self._history.acknowledge(payloads, offset)
            self._cluster.count("acknowledged", len(payloads))
        elif outcome == REFUSED:
            self._history.refuse(payloads)
            self._cluster.count("refused", len(payloads))
            self._connect()
        else:
            self._cluster.count("unknown", len(payloads))
            self._connect()

    def node_died(self, number: int) -> None:
        """Whatever was under way there has an unknown outcome."""
        if number == self.node:
            self._connect()


class Reader:
    """Reads a group at every node that believes to lead it: stale reads come from stale leaders."""

    def __init__(self, cluster: Cluster, group: int, rng: random.Random) -> None:
        self._cluster = cluster
        self._history = cluster.histories[group]
        self._group = group
        self._rng = rng
        self._think()

    def _think(self) -> None:
        self._cluster.queue.after(int(self._rng.random() * 2 * READ_GAP_US), self._read)

    def _read(self) -> None:
        self._think()
        for node in self._cluster.nodes.values():
            process = node.process
            if process is None or self._group not in process.members:
                continue
            if process.members[self._group].raft.state.role == LEADER:
                told = partial(self._told, node.number, self._history.read_floor())
                node.do(process.life, process.read, self._group, told)

    def _told(self, node: int, floor: int, index: int, _: int) -> None:
        if index >= 0:
            self._history.read_answered(node, floor, index)
            self._cluster.count("reads")
        else:
            self._cluster.count("reads refused")
