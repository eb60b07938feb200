"""Processes that stand still for a while (SIGSTOP) and go on as if nothing had been: old leaders with old leases."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from faults.support.verify import under_load

PAUSES = int(os.environ.get("FLOCKMQ_PAUSES", "6"))
SEED = int(os.environ.get("FLOCKMQ_SEED", "1"))

pytestmark = [pytest.mark.timeout(1_800), pytest.mark.xdist_group("faults")]  # a cluster at a time


async def test_a_paused_process_breaks_no_promise(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    async with under_load(tmp_path, SEED) as (cluster, memory):
        for _ in range(PAUSES):
            paused = rng.sample(cluster.nodes, rng.choice((1, 1, 1, 2, 3)))
            for node in paused:
                cluster.pause(node)
            # Often long enough for the others, if they are a majority, to elect leaders and go on.
            await memory.more(rng.choice((0, 100, 1_000)), rng.uniform(0, 3))
            for node in paused:
                cluster.resume(node)
            assert await memory.more(200, 30), "the cluster does not go on after a pause"
