"""Driver and JVM are killed at any progress, a node of the cluster in between: every row is in the sinks once.

```
 publish a part --> [kill a node] --> wait for a seeded progress --> kill -9 the job --> [start the node] --> start it
                                      batch planned | rows in a sink | batch done
```
In the end the topics are read record by record: copies equal to what was published, windows equal to those that plain
Python computes. ``FLOCKMQ_SPARK_KILLS`` says how often (make faults).
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from faults.spark.job import LATE_MS, RECORDS_A_BATCH, WINDOW_MS
from faults.spark.process import JobProcess
from flockmq.client.log_client import LogClient
from flockmq.errors import FlockError
from flockmq.spark.java import find
from spark.nodes import SparkCluster
from spark.written import written

KILLS = int(os.environ.get("FLOCKMQ_SPARK_KILLS", "1"))
SEED = int(os.environ.get("FLOCKMQ_SEED", "1"))
DEVICES: Final = 12
RECORDS_A_PART: Final = 400
STEP_MS: Final = 100
"""Between two records. A part is less than what may come late: a shard whose leader died lags behind by a part."""
FIRST_MS: Final = 1_700_000_000_000
MOMENT_S_MAX: Final = 600.0

pytestmark = [
    pytest.mark.timeout(600 + 600 * KILLS),
    pytest.mark.xdist_group("faults"),  # a cluster at a time
    # Sockets of clients are closed by the garbage collector, whenever it likes.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


class World:
    """A cluster, a job on it, and what was published."""

    def __init__(self, cluster: SparkCluster, client: LogClient, folder: Path) -> None:
        self.cluster, self.client = cluster, client
        self.source = cluster.create_topic("source", shards=3)
        self.sinks = {name: cluster.create_topic(name, shards=2) for name in ("copies", "windows")}
        self.published: list[tuple[str, bytes]] = []
        settings = {"options": cluster.options(), "source": self.source, **self.sinks}
        self.job = JobProcess(folder, settings)

    def publish(self, count: int, *, after_ms: int = 0) -> None:
        """More records, in the order of their time; the next one so much later."""
        first = len(self.published)
        records = []
        for number in range(first, first + count):
            device = f"d{number * 7 % DEVICES}"
            at_ms = FIRST_MS + number * STEP_MS + after_ms
            records.append((f"{self.source}/{device}", f"{device},{number},{at_ms}".encode()))
        self.cluster.publish(self.source, records)
        self.published += records

    def rows(self, sink: str) -> int:
        """How many records a sink's topic has."""
        return sum(head.end_offset for head in self.client.heads(self.sinks[sink]).heads)

    def wait_rows(self, sink: str, goal: int) -> None:
        """Until a sink's topic has so many records; that is known as soon as they can be read."""
        heads = self.client.heads(self.sinks[sink])
        deadline = time.monotonic() + MOMENT_S_MAX
        while (rows := sum(head.end_offset for head in heads.heads)) < goal:
            self.job.check()
            assert time.monotonic() < deadline, f"{rows} of {goal} rows in {sink}\n{self.job.log_tail()}"
            heads = self.client.heads(self.sinks[sink], after=heads.after, wait_ms=1_000)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Until the job has come so far."""
        deadline = time.monotonic() + MOMENT_S_MAX
        while not condition():
            self.job.check()
            assert time.monotonic() < deadline, f"waited in vain for {what}\n{self.job.log_tail()}"
            time.sleep(0.01)

    def moment(self, rng: random.Random) -> str:
        """Wait for some progress, counted from now; what it was."""
        query = rng.choice(("copies", "windows"))
        kind = rng.choice(("planned", "written", "done"))
        if kind == "written":
            rows = self.rows(query)
            left = (len(self.published) if query == "copies" else len(self.windows())) - rows
            goal = rows + rng.randint(1, max(1, left))
            what = f"{goal} rows in {query}"
            self.wait_rows(query, goal)
        else:
            folder = "offsets" if kind == "planned" else "commits"
            goal = self.job.batches(query, folder) + rng.randint(1, RECORDS_A_PART // RECORDS_A_BATCH)
            what = f"batch {goal} of {query} {kind}"
            self.wait(lambda: self.job.batches(query, folder) >= goal, what)
        return what

    def windows(self) -> list[bytes]:
        """The windows that must have come, all but those that the last record leaves open."""
        counts: Counter[tuple[str, int]] = Counter()
        sums: Counter[tuple[str, int]] = Counter()
        for _name, payload in self.published:
            device, number, at_ms = payload.decode().split(",")
            place = (device, int(at_ms) // WINDOW_MS * WINDOW_MS)
            counts[place] += 1
            sums[place] += int(number)
        last_ms = int(self.published[-1][1].rpartition(b",")[2])
        return sorted(
            f"{device},{start},{counts[(device, start)]},{sums[(device, start)]}".encode()
            for device, start in counts
            if start + WINDOW_MS <= last_ms - LATE_MS
        )

    def compare(self) -> None:
        """Record by record: none lost, none twice."""
        copies = Counter(
            (one.name.partition("/")[2], one.payload) for one in written(self.client, self.sinks["copies"])
        )
        wanted = Counter((name.partition("/")[2], payload) for name, payload in self.published)
        assert not wanted - copies, f"{(wanted - copies).total()} records are lost"
        assert not copies - wanted, f"{(copies - wanted).total()} records came twice"
        found = sorted(one.payload for one in written(self.client, self.sinks["windows"]))
        assert found == self.windows()

    def finish(self) -> None:
        """Let the job come to the end of all that was published, with all windows but the last one closed."""
        self.publish(1, after_ms=LATE_MS + 100 * WINDOW_MS)
        total, windows = len(self.published), len(self.windows())
        self.wait_rows("copies", total)
        self.wait_rows("windows", windows)
        # What a batch in the making would write again must show as well.
        for query in self.sinks:
            self.wait(lambda query=query: self._is_done(query), f"the end of {query}")  # type: ignore[misc]

    def _is_done(self, query: str) -> bool:
        return self.job.batches(query, "commits") == self.job.batches(query, "offsets")


@contextmanager
def running(folder: Path) -> Iterator[World]:
    """Three nodes and a job."""
    with SparkCluster(folder / "cluster") as cluster, cluster.client() as client:
        world = World(cluster, client, folder / "job")
        try:
            yield world
        finally:
            world.job.kill()


@pytest.fixture(autouse=True)
def _java() -> None:
    try:
        find()
    except FlockError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def test_every_row_is_written_once(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with running(tmp_path) as world:
        dead = -1
        world.publish(RECORDS_A_PART)
        world.job.start()
        for turn in range(KILLS):
            world.publish(RECORDS_A_PART)
            if dead < 0:
                dead = rng.randrange(3)
                world.cluster.kill(dead)
                print(f"node {dead + 1} is killed")
            began = time.monotonic()
            what = world.moment(rng)
            world.job.kill()
            print(f"kill {turn + 1}, after {time.monotonic() - began:.1f} s: {what}")
            if rng.random() < 0.7 or turn == 0:
                world.cluster.start(dead)
                dead = -1
            world.job.start()
        world.finish()
        world.job.kill()
        world.compare()
        print(f"{len(world.published):,} records, {len(world.windows())} windows: none lost, none twice")
