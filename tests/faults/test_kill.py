"""kill -9 of any process at any moment, over and over, under load. ``FLOCKMQ_KILLS`` says how often (make faults)."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from faults.support.load import Memory
from faults.support.verify import under_load
from flockmq.testing.processes.cluster import ProcessCluster

KILLS = int(os.environ.get("FLOCKMQ_KILLS", "24"))
KILLS_A_CLUSTER = 60
"""Then a new cluster: logs are read and compared from their beginning."""
SEED = int(os.environ.get("FLOCKMQ_SEED", "1"))

pytestmark = [pytest.mark.timeout(1_800), pytest.mark.xdist_group("faults")]  # a cluster at a time


async def moment(memory: Memory, rng: random.Random) -> None:
    """Some time, measured in answers: none, one, many; or a while, when there are none because too many are dead."""
    await memory.more(rng.choice((0, 1, 20, 300, 3_000)), rng.uniform(0, 4))


async def kill_often(cluster: ProcessCluster, memory: Memory, rng: random.Random, kills: int) -> None:
    for _ in range(kills):
        await moment(memory, rng)
        running = [node for node in cluster.nodes if cluster.is_running(node)]
        cluster.kill(rng.choice(running))
        if rng.random() < 0.3:
            await moment(memory, rng)
        dead = [node for node in cluster.nodes if not cluster.is_running(node)]
        if len(dead) == len(cluster.nodes) or rng.random() < 0.8:
            for node in dead:
                cluster.start(node)


@pytest.mark.parametrize("first", range(0, KILLS, KILLS_A_CLUSTER))
async def test_nothing_acknowledged_is_lost(tmp_path: Path, first: int) -> None:
    rng = random.Random(SEED + first)
    kills = min(KILLS_A_CLUSTER, KILLS - first)
    async with under_load(tmp_path, SEED + first) as (cluster, memory):
        await kill_often(cluster, memory, rng, kills)
