"""Checkpoints of session tables, and logs that begin behind them: as retention makes them, but at once.

```
 save --> saved, at the latest after some ticks --> the checkpoint counts --> segments that hold nothing newer go
```
A follower that comes back then gets the checkpoint instead of the entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flockmq.testing.simulation.nodes.process import DurableProcess

LOOK_US: Final = 50_000
LOOKS_MAX: Final = 20


def compact(process: DurableProcess, groups: list[int]) -> None:
    """Begin checkpoints of all replicas that a node has of these groups."""
    engine = process.engine
    for group in groups:
        replica = engine.replicas.get(group)
        if replica is None or group in engine.replay.saving:
            continue
        machines = process.durable.machines
        if replica.checkpoints.save(replica.node, engine.host.desks[group].table, machines.state_of(group)):
            engine.replay.begun(group)  # a tick lets the checkpoint count
            engine.kick()
            _later(process, group, LOOKS_MAX)


def _later(process: DurableProcess, group: int, looks: int) -> None:
    process.cluster.queue.after(LOOK_US, process.machine.do, process.life, _forget, process, group, looks)


def _forget(process: DurableProcess, group: int, looks: int) -> None:
    """Forget what the checkpoint stands for, once it does and the segment that is written to holds nothing newer."""
    replica = process.engine.replicas.get(group)
    if replica is None or looks <= 0:
        return
    checkpoint = replica.checkpoints.latest()
    first = replica.log.first_index()
    if checkpoint is not None and group not in process.engine.replay.saving:
        replica.log.compact_to(min(checkpoint.index, process.durable.machines.by_group[group].applied))
        process.engine.kick()
    if replica.log.first_index() > first:
        process.cluster.count("session logs compacted")
    else:
        _later(process, group, looks - 1)
