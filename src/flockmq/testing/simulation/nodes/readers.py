"""Readers of logs, as they ask over HTTP: where does a log end, and where does my cursor stand?

```
 ask some node, even one that stands still --> ends of all shards    >= all that was known to be committed when asked
                                          |--> where the cursor is   >= all that was said to be stored when asked
                                          `--> move the cursor to an end that was told --> stored, or unknown
```
Nothing has to be answered: a log may have no leader. What is answered has to be true.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands import CreateCursor
from flockmq.cluster.model import DEFAULT_NAMESPACE
from flockmq.cluster.tables import key_of
from flockmq.durable.cursors.cursors import DONE
from flockmq.log.starts import LATEST, Start
from flockmq.testing.simulation.nodes.clients import TOPIC
from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    import random

    from flockmq.cluster.commands import Result
    from flockmq.durable.cursors.cursors import Moved, Positions
    from flockmq.durable.logs.locating import Located
    from flockmq.testing.simulation.nodes.process import DurableMachine
    from flockmq.testing.simulation.nodes.world import NodesWorld

ASK_US: Final = 60_000
"""Mean time between two questions."""
CURSOR: Final = "reader"


class LogReader:
    """One that asks all the time."""

    def __init__(self, cluster: NodesWorld, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._key = b""
        """How partitions call the cursor, once it is made."""
        self._stored: dict[int, int] = {}
        """By group: where the cursor stands at least."""
        self._ends: dict[int, int] = {}
        """By group: the furthest end that was told."""
        self._later()

    def _later(self) -> None:
        self._cluster.queue.after(int(self._rng.random() * 2 * ASK_US) + 1, self._ask_a_node)

    def _ask_a_node(self) -> None:
        self._later()
        cluster = self._cluster
        machine = self._rng.choice(cluster.machines)
        if machine.process is None:
            return
        if not self._key:
            machine.do(machine.life, self._create, machine)
            return
        # A node that stands still hears of this later; all that was true by now has to be in its answer.
        floors = dict(zip(cluster.groups, cluster.ends, strict=True))
        machine.do(machine.life, self._ask, machine, floors, dict(self._stored))

    def _create(self, machine: DurableMachine) -> None:
        if machine.process is not None:
            meta = machine.process.durable.meta
            known = meta.state.cursors.get(key_of(DEFAULT_NAMESPACE, CURSOR))
            if known is not None:
                self._key = known.key.encode()
            else:
                meta.submit(CreateCursor(CURSOR, TOPIC)).then(self._created)

    def _created(self, result: Result) -> None:
        self._cluster.count("cursors made", int(result.ok))

    def _ask(self, machine: DurableMachine, floors: dict[int, int], stored: dict[int, int]) -> None:
        if machine.process is None:
            return
        durable = machine.process.durable
        durable.logs.tasks.now = self._cluster.now_ms()
        groups = list(floors)
        located = durable.logs.locate(groups, Start(LATEST))
        located.then(partial(self._on_heads, machine.number, floors))
        durable.cursors.positions(groups, [self._key]).then(partial(self._on_positions, machine.number, stored))
        for group, end in self._ends.items():
            if end > self._stored.get(group, 0) and self._rng.random() < 0.5:
                durable.cursors.commit(group, self._key, end).then(partial(self._on_moved, group, end))

    def _on_heads(self, number: int, floors: dict[int, int], found: dict[int, Located]) -> None:
        for group, one in found.items():
            end = one.end
            self._cluster.count("ends told")
            self._ends[group] = max(self._ends.get(group, 0), end)
            if end < floors[group]:
                text = f"node {number} was told that group {group} ends at {end}; {floors[group]} was committed before"
                raise Violation("ends", text)

    def _on_positions(self, number: int, stored: dict[int, int], told: Positions) -> None:
        for one in told.found:
            self._cluster.count("cursors told")
            if one.offset < stored.get(one.group, -1):
                text = (
                    f"node {number} was told {one.offset} in group {one.group}; {stored[one.group]} was stored before"
                )
                raise Violation("cursors", text)

    def _on_moved(self, group: int, offset: int, moved: Moved) -> None:
        if moved.code == DONE:
            self._cluster.count("cursors moved")
            self._stored[group] = max(self._stored.get(group, 0), offset)
