"""Bits that turn over in segment files of one node of a simulated cluster, and whether all of them were mended."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from flockmq.testing.simulation.disk import SimulatedDisk
from flockmq.testing.simulation.nodes.stores import survives

if TYPE_CHECKING:
    from flockmq.testing.simulation.nodes.process import DurableMachine, DurableProcess


def flip(machine: DurableMachine, rng: random.Random) -> str:
    """Turn a bit over among committed entries in files of a node that runs; where, empty when there is none.

    Groups that can't do without the node are spared: what its disk loses, no replica has.
    """
    process = machine.process
    if process is None:
        return ""
    disk: SimulatedDisk = machine.disk
    places: list[tuple[str, int]] = []
    for replica in process.engine.replicas.values():
        log = replica.log
        if not survives(replica.node.state.configuration, machine.number):
            continue
        for segment in log.segments:
            path = log.path(segment.file_name())
            if segment.flushed and segment.flushed_index - 1 <= log.settled and disk.size(path) >= segment.flushed:
                places.append((path, segment.flushed))
    if not places:
        return ""
    path, length = rng.choice(places)
    return disk.flip_at(path, rng.randrange(length), rng)


def scrub(processes: list[DurableProcess]) -> None:
    """Let all nodes look at all they have."""
    for process in processes:
        process.durable.scrubbing.scrub_now(list(process.engine.replicas))


def unmended(processes: list[DurableProcess]) -> str:
    """What is damaged, or not looked at."""
    for process in processes:
        number = process.number
        scrubbing = process.durable.scrubbing
        for group, replica in process.engine.replicas.items():
            if scrubbing.is_due(group) or scrubbing.is_looking_at(group):
                return f"node {number} still reads group {group}"
            if replica.log.gaps:
                return f"node {number} has damage in group {group}, from entry {replica.log.gaps[0].first} on"
            if scrubbing.digests.differing(group)[0]:
                return f"node {number} finds that group {group} differs"
    return ""
