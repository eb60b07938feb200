"""Files of one node that are not what it wrote: half a write, or a flipped bit. The others have everything."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from faults.support.corrupt import flip, tear
from faults.support.verify import under_load
from flockmq.testing.processes.calls import ask, until

ROUNDS = int(os.environ.get("FLOCKMQ_CORRUPTIONS", "4"))
SEED = int(os.environ.get("FLOCKMQ_SEED", "1"))

pytestmark = [pytest.mark.timeout(1_800), pytest.mark.xdist_group("faults")]  # a cluster at a time


async def test_a_write_that_was_under_way_is_cut(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    torn = 0
    async with under_load(tmp_path, SEED) as (cluster, memory):
        for _ in range(ROUNDS):
            node = rng.choice(cluster.nodes)
            cluster.kill(node)
            await memory.more(50, 3)
            other = rng.choice([one for one in cluster.nodes if one != node])
            torn += tear(cluster.data(node), cluster.data(other), rng)
            cluster.start(node)
            await memory.more(300, 10)
            status = (await until(cluster, lambda seen, node=node: node in seen, f"node {node}"))[node]  # type: ignore[misc]
            assert status["notes"] == [], "a torn write is no damage"
    assert torn


async def test_a_flipped_bit_is_never_served(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    async with under_load(tmp_path, SEED) as (cluster, memory):
        victim = rng.choice(cluster.nodes)
        for _ in range(ROUNDS):
            cluster.kill(victim)
            print(flip(cluster.data(victim), rng))
            cluster.start(victim)
            await memory.more(300, 10)
            if rng.random() < 0.5:
                other = rng.choice([node for node in cluster.nodes if node != victim])
                cluster.kill(other)
                await memory.more(100, 1)
                cluster.start(other)
            await until(cluster, lambda seen: victim in seen, f"node {victim}")
            status = await ask(cluster.address(victim))
            print(status and (status["notes"], status["broken"], [group["health"] for group in status["groups"]]))
