"""Leaders die and stand still, all nodes die at once, files are damaged: nothing acknowledged is lost or reordered.

By default one short story in which everything happens once. ``FLOCKMQ_FAULTS_S`` (make faults) tells the long ones,
one for each kind of fault, each as long as it says.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from faults.durable import damage
from faults.durable.cluster import Nodes, is_whole, on_loopback, report_gaps, under_load, wait
from faults.durable.memory import Memory

SECONDS = float(os.environ.get("FLOCKMQ_FAULTS_S", "0"))
SEED = int(os.environ.get("FLOCKMQ_SEED", "1"))
GAP_S_MAX = float(os.environ.get("FLOCKMQ_FAULTS_GAP_S", "3" if SECONDS else "20"))
"""A short run shares its machine with other tests, and says more about them than about the nodes."""
KILL_EVERY_S = 5.0
PAUSE_S = 10.0 if SECONDS else 3.0
LONG = [("kill",), ("pause",), ("all",), ("flip", "truncate")]
STORIES = LONG if SECONDS else [("kill", "pause", "all", "truncate", "flip")]

pytestmark = [pytest.mark.timeout(1_800), pytest.mark.xdist_group("faults")]  # a cluster at a time


async def kill(nodes: Nodes, memory: Memory, rng: random.Random) -> None:
    """A leader dies, and is back two seconds later."""
    number = nodes.some_leader(rng)
    began = time.monotonic()
    nodes.kill(number)
    await asyncio.sleep(2)
    nodes.start(number)
    assert await memory.more_of_all(60), f"not all shards go on after node {number + 1} died\n{nodes.logs()}"
    memory.kills.append((began, time.monotonic()))
    await asyncio.sleep(max(0.0, KILL_EVERY_S - (time.monotonic() - began)) if SECONDS else 0)


async def pause(nodes: Nodes, memory: Memory, rng: random.Random) -> None:
    """A leader stands still, and goes on as if nothing had been."""
    node = nodes.nodes[nodes.some_leader(rng)]
    node.pause()
    try:
        await asyncio.sleep(PAUSE_S)
    finally:
        node.resume()
    assert await memory.more_of_all(60), f"not all shards go on after {node.name} stood still\n{nodes.logs()}"


async def kill_all(nodes: Nodes, memory: Memory, rng: random.Random) -> None:
    """All nodes die in the same moment."""
    for node in nodes.nodes:
        node.pause()
    for node in nodes.nodes:
        node.kill()
    await asyncio.sleep(rng.uniform(0, 1))
    began = time.monotonic()
    nodes.start_all()
    assert await memory.more_of_all(60), f"not all shards go on after all nodes died\n{nodes.logs()}"
    print(f"all nodes died; all shards take messages {time.monotonic() - began:.1f} s after their start")


async def spoil(nodes: Nodes, memory: Memory, rng: random.Random, how: str) -> None:
    """Segments of one node, always the same, are not what it wrote."""
    node = nodes.nodes[-1]
    await asyncio.to_thread(node.stop)  # in order, so that what it had is in segments
    print(getattr(damage, how)(node.folder / "data", rng))
    node.start()
    assert await memory.more_of_all(60), f"not all shards go on\n{nodes.logs()}"
    await wait("the damage to be repaired", nodes, lambda: is_whole(nodes, len(nodes.nodes) - 1), 60)


@pytest.mark.parametrize("story", STORIES, ids="-".join)
async def test_nothing_acknowledged_is_lost(tmp_path: Path, story: tuple[str, ...]) -> None:
    rng = random.Random(f"{SEED} {story}")
    faults = {"kill": kill, "pause": pause, "all": kill_all}
    with on_loopback(tmp_path) as nodes:
        async with under_load(nodes) as memory:
            began = time.monotonic()
            while True:
                for word in story:
                    if word in faults:
                        await faults[word](nodes, memory, rng)
                    else:
                        await spoil(nodes, memory, rng, word)
                if time.monotonic() - began >= SECONDS:
                    break
            report_gaps(memory, GAP_S_MAX)
